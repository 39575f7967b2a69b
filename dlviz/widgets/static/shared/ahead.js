// What a kernel told ahead of the values along one slider, so that they can be shown before it has answered.

/** @import { Answer } from "./explorer.js" */

/** @typedef {Pick<Answer, "controls" | "error"> & { ran: number }} Shown */

/** Pictures by the values of the control `name`, all others being those of `of`, after run `ran`; {} where nothing was
 * told.
 * @typedef {{ of?: Record<string, any>, ran?: number, name?: string, pictures?: Record<string, any> }} Ahead */

/** Whether pictures were told along a slider of what is shown now.
 * @type {(data: Shown, ahead: Ahead, slider: string) => boolean} */
export function isAlong({ controls, ran }, ahead, slider) {
  const { of = {} } = ahead;
  return ahead.name === slider && ahead.ran === ran
    && Object.keys(of).every((name) => name === slider || of[name] === controls[name]);
}

/** What was told ahead of controls of which one alone is another than those shown now; null where nothing was.
 * @type {(data: Shown, controls: Record<string, any>, ahead: Ahead) => any} */
export function aheadOf(data, controls, ahead) {
  const [name, ...others] = Object.keys(controls).filter((one) => controls[one] !== data.controls[one]);
  if (name == null || others.length || data.error || !isAlong(data, ahead, name)) return null;
  return ahead.pictures?.[controls[name]] ?? null;
}
