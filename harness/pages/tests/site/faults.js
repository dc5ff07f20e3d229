(() => {
  const faults = [];
  const root = document.documentElement;
  if (root.scrollWidth > root.clientWidth) faults.push(`overflow: ${root.scrollWidth} of ${root.clientWidth}`);
  const scrolls = (node) => { for (let up = node.parentElement; up; up = up.parentElement) if (/auto|scroll/.test(getComputedStyle(up).overflowX)) return true; return false; };
  const named = (node) => `${node.tagName}.${node.getAttribute("class") || ""} "${node.textContent.trim().slice(0, 40)}"`;
  const luminance = ([r, g, b]) => [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const parse = (text) => { const found = text.match(/rgba?\(([^)]+)\)/); if (!found) return null; const [r, g, b, a = 1] = found[1].split(/[ ,/]+/).filter(Boolean).map(Number); return [r, g, b, a]; };
  const over = ([r, g, b, a], [x, y, z]) => [r * a + x * (1 - a), g * a + y * (1 - a), b * a + z * (1 - a), 1];
  const ground = (node) => {
    const layers = [];
    for (let up = node; up; up = up.parentElement) { const color = parse(getComputedStyle(up).backgroundColor); if (color && color[3] > 0) { layers.push(color); if (color[3] === 1) break; } }
    const base = matchMedia("(prefers-color-scheme: dark)").matches ? [18, 18, 18, 1] : [255, 255, 255, 1];
    return layers.reverse().reduce((below, layer) => over(layer, below), base);
  };
  for (const node of document.querySelectorAll("body *")) {
    const style = getComputedStyle(node);
    const box = node.getBoundingClientRect();
    if (style.display === "none" || style.visibility === "hidden" || !box.width || !box.height) continue;
    const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.textContent.trim());
    if (!own || node.closest("script, style, .skip")) continue;
    if (box.right > root.clientWidth + 1 && !scrolls(node)) faults.push(`overflow: ${named(node)} ends at ${Math.round(box.right)}`);
    const svg = node.closest("svg");
    const color = parse(svg ? style.fill : style.color);
    if (!color) continue;
    const [a, b] = [luminance(over(color, ground(svg || node))), luminance(ground(svg || node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) faults.push(`contrast ${ratio.toFixed(2)}: ${named(node)}`);
  }
  return [...new Set(faults)].slice(0, 12);
})()
