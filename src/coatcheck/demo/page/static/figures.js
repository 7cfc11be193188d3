// Figures as the page shows them: never more private than what holds.

/** Round up to four digits, so that what is read is not more private than what holds. */
export function digits(value) {
  if (value === 0) return "0";
  const shown = Number(value.toPrecision(4));
  return String(shown >= value ? shown : Number((value * (1 + 5e-4)).toPrecision(4)));
}
