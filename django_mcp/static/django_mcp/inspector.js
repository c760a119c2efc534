"use strict";
// Sends the inspector's forms in the background and shows each message when it arrives. The page
// works without this script: then it is loaded again with the result.
{
  const find = (selector) => document.querySelector(selector);
  const live = find("#inspector-live");
  const status = find("#inspector-live [role=status]");
  const bar = find("#inspector-live progress");
  const button = find("#inspector-live button");
  const result = find("#inspector-result");
  const messages = find("#inspector-messages");
  let abort = null;

  // The server has escaped all values in its HTML.
  const append = (html) => find("#inspector-messages ol").insertAdjacentHTML("beforeend", html);

  function showProgress(update) {
    bar.hidden = false;
    if (update.total) {
      bar.max = update.total;
      bar.value = update.progress;
    } else {
      bar.removeAttribute("value");
    }
    status.textContent = update.status || live.dataset.sent;
  }

  function show(update) {
    if ("message" in update) {
      messages.hidden = false;
      append(update.message);
    }
    if ("progress" in update) showProgress(update);
    if ("result" in update) {
      live.hidden = true;
      result.innerHTML = update.result;
      find("#inspector-result-heading")?.focus();
    }
  }

  async function read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    let hasResult = false;
    for (let part = await reader.read(); !part.done; part = await reader.read()) {
      const lines = (rest + part.value).split("\n");
      rest = lines.pop();
      for (const line of lines) {
        const update = JSON.parse(line);
        hasResult ||= "result" in update;
        show(update);
      }
    }
    return hasResult;
  }

  async function send(form) {
    abort = new AbortController();
    const isCall = !form.matches(".inspector-answers");
    status.textContent = live.dataset.sent;
    live.hidden = button.hidden = false;
    bar.hidden = true;
    const options = {
      method: "POST", body: new FormData(form), signal: abort.signal,
      headers: { Accept: "application/x-ndjson" },
    };
    try {
      const response = await fetch(form.action, options);
      if (!response.ok) throw new Error(response.statusText);
      if (!response.headers.get("Content-Type").startsWith("application/x-ndjson")) {
        form.submit(); // the form has errors and nothing was called: load the page that shows them
        return;
      }
      result.replaceChildren();
      if (isCall) find("#inspector-messages ol").replaceChildren();
      if (!(await read(response.body))) throw new Error("The stream has no result.");
    } catch {
      status.textContent = abort.signal.aborted ? live.dataset.stopped : live.dataset.lost;
      bar.hidden = button.hidden = true;
    }
  }

  document.addEventListener("submit", (event) => {
    if (!live || !event.target.matches(".inspector-call")) return;
    if (event.submitter?.name === "suggest") return; // loads the page with the suggestions
    event.preventDefault();
    abort?.abort();
    send(event.target);
  });
  button?.addEventListener("click", () => abort?.abort());
}
