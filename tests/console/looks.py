"""What a browser is asked of a page that only it can tell: contrast of texts, and what has no name."""

LOW_CONTRAST = """() => {
  const part = (v) => { v /= 255; return v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const parse = (color) => {
    const found = color.match(/[\\d.]+/g).map(Number);
    return { rgb: found.slice(0, 3), alpha: found[3] ?? 1 };
  };
  const ground = (element) => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.alpha > 0.99) return color.rgb;
    }
    return [255, 255, 255];
  };
  const found = [];
  for (const element of document.querySelectorAll("body *")) {
    const text = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!text || !element.offsetParent) continue;
    const pair = [light(parse(getComputedStyle(element).color).rgb), light(ground(element))];
    const ratio = (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
    if (ratio < 4.5) found.push([element.tagName, element.textContent.trim().slice(0, 40), ratio.toFixed(2)]);
  }
  return found;
}"""
"""Texts whose contrast to the ground they stand on is under 4.5, as WCAG 2 reckons it."""

UNLABELLED = """() => {
  const all = "input:not([type=hidden]), select, button, a, svg[role=img], table, nav";
  const named = (element) => {
    switch (element.tagName) {
      case "INPUT": case "SELECT": return element.labels?.length || element.ariaLabel;
      case "BUTTON": case "A": return element.textContent.trim() || element.ariaLabel;
      case "TABLE": return element.querySelector("th[scope=col]");
      default: return element.ariaLabel || element.getAttribute("aria-labelledby");
    }
  };
  return [...document.querySelectorAll(all)].filter((one) => !named(one)).map((one) => one.outerHTML.slice(0, 120));
}"""
"""Fields, buttons, links, pictures and navigations without a name; tables without column headers."""
