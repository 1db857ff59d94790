"""What is asked of any page: scripts that a browser runs in it."""

# Contrast of WCAG 2.2 of each piece of visible text, with the colours that lie behind it.
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
function rgba(text) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = text; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
}
const over = (top, under) => [0, 1, 2].map(i => top[i] * top[3] + under[i] * (1 - top[3])).concat([1]);
function behind(element) {
  const layers = [];
  for (let e = element; e; e = e.parentElement) layers.push(rgba(getComputedStyle(e).backgroundColor));
  return layers.reverse().reduce((under, top) => over(top, under), rgba("canvas"));
}
const light = c => c.slice(0, 3).map(v => v / 255).map(v => v <= .04045 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4)
  .reduce((sum, v, i) => sum + v * [.2126, .7152, .0722][i], 0);
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const text = walker.currentNode.textContent.trim(), element = walker.currentNode.parentElement;
  if (!text || !element.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
  if (element.closest("svg, .unseen, .skip:not(:focus)")) continue;
  const under = behind(element), colour = over(rgba(getComputedStyle(element).color), under);
  const [a, b] = [light(colour), light(under)];
  found.push([(Math.max(a, b) + .05) / (Math.min(a, b) + .05), text.slice(0, 60)]);
}
return found;
"""

# Pieces of text that reach beyond the screen, but for tables that scroll by themselves.
CUT_OFF = """
const found = [];
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
  if (element.closest("svg, .unseen, .skip, .scroll, pre")) continue;
  const range = document.createRange(); range.selectNodeContents(walker.currentNode);
  const box = range.getBoundingClientRect();
  const clipped = getComputedStyle(element).overflow === "hidden";
  if (!clipped && (box.right > innerWidth + 1 || box.left < -1)) found.push(walker.currentNode.textContent.trim());
}
return found;
"""
