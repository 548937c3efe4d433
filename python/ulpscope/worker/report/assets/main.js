// Puts everything where the page has a place for it.

/** The place of a section, if the page has that section. */
const placeOf = (name) => document.querySelector(`#${name} .drawn`);

for (const old of document.querySelectorAll(".command")) {
  old.querySelector(".copy").replaceWith(copyButton(old.querySelector("code").textContent));
}
// What is looked up now and then is closed where room is short.
if (matchMedia("(max-width: 640px)").matches)
  for (const each of document.querySelectorAll("details.folds")) each.open = false;
addEventListener("beforeprint", () => {
  for (const each of document.querySelectorAll("details.folds")) each.open = true;
});
try {
  const report = await readDocument();
  const [answer, other] = report.answers.map((each) => new Answer(each));
  if (answer.layers.length) {
    new Strip(placeOf("network"), answer, other);
    showLayers(placeOf("layers"), answer);
    new Graph(placeOf("graph"), answer);
  } else {
    document.querySelectorAll("#network, #layers, #graph").forEach((section) => {
      section.hidden = true;
    });
  }
  if (placeOf("trials")) new Trials(placeOf("trials"), answer, other, report.trial_command);
  if (other) showDifferences(placeOf("compare"), answer, other);
  if (placeOf("casts")) showCasts(placeOf("casts"), report.typed.casts);
} catch (error) {
  const sorry = document.createElement("p");
  sorry.className = "verdict bad";
  sorry.textContent = `The interactive parts of this page could not be made: ${error.message}`;
  document.querySelector("header").append(sorry);
  console.error(error);
}
document.documentElement.dataset.ready = "true";
