// The front ends' modules: plain mistakes, and what keeps them readable.
import js from "@eslint/js";
import stylistic from "@stylistic/eslint-plugin";
import jsdoc from "eslint-plugin-jsdoc";

export default [
  js.configs.recommended,
  {
    files: ["dlviz/widgets/static/**/*.js"],
    plugins: { jsdoc, stylistic },
    rules: {
      "max-lines-per-function": ["error", 80],
      "no-undef": "off", // tsc knows what a browser has
      "prefer-const": ["error", { destructuring: "all" }],
      eqeqeq: ["error", "always", { null: "ignore" }],
      "stylistic/max-len": ["error", 120],
      "jsdoc/require-jsdoc": ["error", { publicOnly: true }],
    },
  },
];
