// How well people were served: by the server alone, after settling, with true places, and at random.

const NAMES = {
  settled: "private, by sealed letters",
  private: "private, the server alone",
  without_noise: "true places",
  at_random: "chance",
};
const metres = (value) => (value === null ? "–" : `${Math.round(value).toLocaleString("en")} m`);
const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);

/** Return the result in one sentence, compared with true places and with chance. */
export function headline({ settled, private: alone, without_noise: truth, at_random: chance }) {
  const result = settled ?? alone;
  const people = result.served.toLocaleString("en");
  return result.within === null
    ? `${people} people have a partner, ${metres(result.mean_distance)} away on average (${metres(truth.mean_distance)} with true places, ${metres(chance.mean_distance)} by chance).`
    : `${people} people have an answer that names somebody, and ${percent(result.within)} of those named are truly near (${percent(chance.within)} by chance). Of the near people that true places would name, ${percent(result.recall)} are found.`;
}

/** Return the rows of the table, in the order of `NAMES`; a result that was not measured has no row. */
export function served(service) {
  return Object.entries(NAMES).filter(([name]) => service[name]).map(([name, words]) => {
    const { served: people, pairs, mean_distance: mean, median_distance: median, within, recall } = service[name];
    const row = document.createElement("tr");
    row.dataset.served = name;
    const cells = [words, people.toLocaleString("en"), pairs.toLocaleString("en"), metres(mean), metres(median), percent(within), percent(recall)];
    row.append(...cells.map((text) => Object.assign(document.createElement("td"), { textContent: text })));
    return row;
  });
}
