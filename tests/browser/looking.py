"""Measurements of a page in the browser. Each returns a list of defects."""

# Shared by those below: what can be seen, and what to call it.
SEEN = """
  const shown = one => one.checkVisibility({visibilityProperty: true})
    && one.getClientRects().length;
  const called = one => one.tagName.toLowerCase() + (one.id ? '#' + one.id : '') + ' '
    + one.textContent.trim().slice(0, 40);
"""

# Text whose colour is too near to that of what is behind it.
CONTRAST = f"""(() => {{ {SEEN}
  const parts = text => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => [r, g, b].map(part => part / 255)
    .map(part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const behind = one => {{
    for (; one; one = one.parentElement) {{
      const ground = parts(getComputedStyle(one).backgroundColor);
      if (ground.length < 4 || ground[3] === 1) return ground;
      if (ground[3] > 0) throw new Error('half transparent: ' + called(one));
    }}
    throw new Error('nothing is behind');
  }};
  return [...document.querySelectorAll('body *')].filter(one => shown(one)
      && [...one.childNodes].some(node => node.nodeType === 3 && node.data.trim()))
    .map(one => {{
      const style = getComputedStyle(one);
      const [a, b] = [parts(style.color), behind(one)].map(light);
      const size = parseFloat(style.fontSize), bold = +style.fontWeight >= 700;
      const least = size >= 24 || (bold && size >= 18.66) ? 3 : 4.5;
      return [(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), least, called(one)];
    }})
    .filter(([ratio, least]) => !(ratio >= least)).map(String);
}})()"""

# What reaches out of the window, or out of what it is in.
OVERFLOW = f"""(() => {{ {SEEN}
  const wide = document.documentElement.clientWidth;
  const out = [...document.querySelectorAll('body *')].filter(one => shown(one)
    && !one.matches('.skip') && one.getBoundingClientRect().right > wide + 0.5);
  if (document.documentElement.scrollWidth > wide) out.push(document.documentElement);
  return out.map(called);
}})()"""

# What is too small to be hit.
SMALL = f"""(() => {{ {SEEN}
  return [...document.querySelectorAll('a, button, summary')].filter(shown)
    .filter(one => !(one.tagName === 'A' && getComputedStyle(one).display === 'inline'))
    .filter(one => !one.matches('.skip'))
    .filter(one => {{
      const box = one.getBoundingClientRect();
      return box.width < 24 || box.height < 24;
    }}).map(called);
}})()"""

# What has no name, names what is not there, or has the name of another.
NAMES = f"""(() => {{ {SEEN}
  const ids = [...document.querySelectorAll('[id]')].map(one => one.id);
  const labelled = [...document.querySelectorAll('[aria-labelledby]')];
  return [
    ...ids.filter((id, index) => ids.indexOf(id) !== index).map(id => 'twice: ' + id),
    ...labelled.filter(one => !document.getElementById(one.getAttribute('aria-labelledby')))
      .map(one => 'named by nothing: ' + called(one)),
    ...[...document.querySelectorAll('a, summary, h1, h2, h3, h4')]
      .filter(one => !one.textContent.trim()).map(one => 'nameless: ' + called(one)),
    ...[...document.querySelectorAll('a[href^="#"]')]
      .filter(one => !document.querySelector(one.getAttribute('href')))
      .map(one => 'leads nowhere: ' + called(one)),
    ...[...document.images].filter(one => !one.hasAttribute('alt'))
      .map(one => 'no alt: ' + one.src),
    ...(document.documentElement.lang ? [] : ['no language']),
  ];
}})()"""

# How many things there are to come to.
STOPS = f"""(() => {{ {SEEN}
  return [...document.querySelectorAll('a, button, summary')].filter(shown).length;
}})()"""

# How what has the focus shows it, and where it is among the others.
OUTLINE = """(() => {
  const one = document.activeElement, style = getComputedStyle(one);
  const all = [...document.querySelectorAll('a, button, summary')];
  return {
    place: all.indexOf(one), text: one.textContent.trim().slice(0, 40),
    outline: style.outlineStyle === 'none' ? 0 : parseFloat(style.outlineWidth),
  };
})()"""
