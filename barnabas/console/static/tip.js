// The words for what is under the pointer, or has the focus (`data-tip`).

const tip = document.getElementById("tip");

function showTip(target) {
  const box = target.getBoundingClientRect();
  tip.textContent = target.dataset.tip;
  tip.hidden = false;
  tip.style.left = "0"; // where it has all the width, so that it can be measured
  const width = tip.offsetWidth;
  tip.style.left = `${Math.max(8, Math.min(innerWidth - width - 8, box.left + box.width / 2 - width / 2))}px`;
  const above = box.top - tip.offsetHeight - 8;
  tip.style.top = `${above > 4 ? above : box.bottom + 8}px`;
}

function hideTip() { tip.hidden = true; }

document.addEventListener("pointerover", (event) => {
  const target = event.target.closest("[data-tip]");
  if (target) showTip(target); else hideTip();
});
document.addEventListener("focusin", (event) => { if (event.target.dataset && event.target.dataset.tip) showTip(event.target); else hideTip(); });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
document.addEventListener("scroll", hideTip, { passive: true });
