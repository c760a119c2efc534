// The page's side of MCP Apps, revision 2026-01-26: JSON-RPC with the host by postMessage.
// `mcp.on(event, handler)` receives "input", "partial", "result", "cancelled", "context" and
// "teardown". `mcp.callTool(name, arguments)`, `mcp.sendMessage(text)`, `mcp.openLink(url)` and
// `mcp.request(method, params)` return promises. `mcp.ready` resolves with what the host is.
"use strict";
const mcp = (() => {
  const EVENTS = {
    "ui/notifications/tool-input": ["input", params => params.arguments ?? {}],
    "ui/notifications/tool-input-partial": ["partial", params => params.arguments ?? {}],
    "ui/notifications/tool-result": ["result", params => params],
    "ui/notifications/tool-cancelled": ["cancelled", params => params.reason ?? ""],
  };
  const handlers = {}, latest = {}, waiting = new Map(), context = {};
  let lastId = 0, lastSize = "";

  // The page does not know the host's origin. It posts to its parent window and to no other.
  const post = message => window.parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const notify = (method, params = {}) => post({ method, params });
  const send = (method, params = {}) => new Promise((resolve, reject) => {
    waiting.set(++lastId, { resolve, reject });
    post({ id: lastId, method, params });
  });

  const emit = (event, value) => {
    latest[event] = value;
    for (const handler of handlers[event] ?? []) handler(value);
  };
  // A handler that comes late gets the latest value at once.
  const on = (event, handler) => {
    (handlers[event] ??= []).push(handler);
    if (event in latest) handler(latest[event]);
  };

  const useContext = changed => {
    Object.assign(context, changed);
    const root = document.documentElement;
    if (context.theme === "light" || context.theme === "dark") {
      root.dataset.theme = root.style.colorScheme = context.theme;
    }
    for (const [name, value] of Object.entries(context.styles?.variables ?? {})) {
      if (name.startsWith("--") && typeof value === "string") root.style.setProperty(name, value);
    }
    emit("context", context);
  };

  const settle = ({ id, result, error }) => {
    const call = waiting.get(id);
    waiting.delete(id);
    if (!call) return;
    if (!error) call.resolve(result);
    else call.reject(Object.assign(new Error(error.message), { code: error.code }));
  };
  const answer = ({ id, method, params }) => {
    if (method === "ui/resource-teardown") emit("teardown", params?.reason ?? "");
    else if (method !== "ping") {
      post({ id, error: { code: -32601, message: `Unknown method: ${method}` } });
      return;
    }
    post({ id, result: {} });
  };
  window.addEventListener("message", ({ source, data }) => {
    // Any window can post to this one. Only the host is the parent.
    if (source !== window.parent || source === window || data?.jsonrpc !== "2.0") return;
    if (data.method === undefined) settle(data);
    else if (data.id !== undefined) answer(data);
    else if (data.method === "ui/notifications/host-context-changed") useContext(data.params);
    else if (Object.hasOwn(EVENTS, data.method)) {
      const [event, value] = EVENTS[data.method];
      emit(event, value(data.params ?? {}));
    }
  });

  const reportSize = () => {
    const height = Math.ceil(document.documentElement.getBoundingClientRect().height);
    const size = { width: Math.ceil(window.innerWidth), height };
    if (JSON.stringify(size) === lastSize) return;
    lastSize = JSON.stringify(size);
    notify("ui/notifications/size-changed", size);
  };
  const start = async () => {
    const host = await send("ui/initialize", {
      protocolVersion: "2026-01-26",
      appInfo: { name: document.title || "page", version: "1" },
      appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
    });
    useContext(host.hostContext ?? {});
    notify("ui/notifications/initialized");
    new ResizeObserver(reportSize).observe(document.documentElement);
    return host;
  };
  // All scripts of the page have run by then, so their handlers miss nothing.
  const ready = new Promise(resolve => {
    document.addEventListener("DOMContentLoaded", resolve, { once: true });
  }).then(start);

  const request = async (method, params) => {
    await ready;
    return send(method, params);
  };
  return {
    ready, on, request,
    callTool: (name, args = {}) => request("tools/call", { name, arguments: args }),
    sendMessage: text => request("ui/message", { role: "user", content: [{ type: "text", text }] }),
    openLink: url => request("ui/open-link", { url }),
  };
})();
