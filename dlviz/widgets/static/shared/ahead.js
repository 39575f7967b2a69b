// Pictures for the values along one slider, sent ahead so that they can be shown before the kernel answers.

/** @import { Answer } from "./explorer.js" */

/** @typedef {Pick<Answer, "controls" | "error"> & { ran: number }} Shown */

/** Pictures by the values of the control `name`, with the other controls as in `of`, after run `ran`; {} if there are
 * none.
 * @typedef {{ of?: Record<string, any>, ran?: number, name?: string, pictures?: Record<string, any> }} Ahead */

/** Whether pictures along a slider were sent for what is shown now.
 * @type {(data: Shown, ahead: Ahead, slider: string) => boolean} */
export function isAlong({ controls, ran }, ahead, slider) {
  const { of = {} } = ahead;
  return ahead.name === slider && ahead.ran === ran
    && Object.keys(of).every((name) => name === slider || of[name] === controls[name]);
}

/** The picture sent ahead for controls that differ in one value from those shown; null if there is none.
 * @type {(data: Shown, controls: Record<string, any>, ahead: Ahead) => any} */
export function aheadOf(data, controls, ahead) {
  const [name, ...others] = Object.keys(controls).filter((one) => controls[one] !== data.controls[one]);
  if (name == null || others.length || data.error || !isAlong(data, ahead, name)) return null;
  return ahead.pictures?.[controls[name]] ?? null;
}
