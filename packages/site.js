// Adds what the theme lacks for a keyboard and for a screen reader.
document$.subscribe(() => {
  document.querySelector(".md-search[role=dialog]")?.setAttribute("aria-label", "Search")
  // Each landmark gets its own name: the theme names no section that begins with a page.
  for (const menu of document.querySelectorAll("nav[aria-labelledby]")) {
    menu.removeAttribute("aria-labelledby")
    menu.ariaLabel = menu.querySelector(".md-nav__title").textContent.trim()
  }
  for (const buttons of document.querySelectorAll(".md-code__nav")) buttons.role = "none"
  // The empty corner of a table is no header.
  for (const corner of document.querySelectorAll(".md-typeset th:empty")) {
    corner.replaceWith(document.createElement("td"))
  }
  // A keyboard scrolls a wide table, drawing or picture only if it can have the focus.
  const wide = ".md-typeset__scrollwrap, .md-typeset pre > code, .md-typeset p:has(> img)"
  for (const box of document.querySelectorAll(wide)) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0
  }
})
