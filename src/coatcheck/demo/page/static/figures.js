// Figures as the page shows them: an ε is never rounded down.

/** Round up to four significant digits, so that the page never shows a smaller ε than the guarantee. */
export function digits(value) {
  if (value === 0) return "0";
  const shown = Number(value.toPrecision(4));
  return String(shown >= value ? shown : Number((value * (1 + 5e-4)).toPrecision(4)));
}
