// `node validate.mjs FILE...`: the HTML errors that matter, one line of JSON for each file.

import { FileSystemConfigLoader, HtmlValidate } from "html-validate";

const validator = new HtmlValidate(
  new FileSystemConfigLoader({
    root: true,
    extends: ["html-validate:recommended"],
    rules: {
      // matters of taste, or of what templates leave behind, which a browser reads alike
      "attr-quotes": "off",
      "attribute-boolean-style": "off",
      "doctype-style": "off",
      "no-trailing-whitespace": "off",
      "void-style": "off",
      "prefer-tbody": "off", // the parser adds it
      "no-implicit-button-type": "off", // the default is meant
      "no-implicit-input-type": "off", // likewise
      "no-inline-style": "off", // KaTeX places its glyphs so
      "valid-id": ["error", { relaxed: true }], // Sphinx writes names such as __toc
      "long-title": "off", // a title says what the page is, whatever its length
      "prefer-native-element": "off", // the theme's captions are headings by their role
      "no-dup-id": "off", // furo's boxes have the names of what they hold, and drawings share letters
      "unique-landmark": "off", // axe judges landmarks
      "wcag/h32": "off", // the theme's search is sent by Enter
    },
  }),
);

for (const file of process.argv.slice(2)) {
  const report = await validator.validateFile(file);
  const faults = report.results
    .flatMap((result) => result.messages)
    .map(({ line, column, ruleId, message }) => `line ${line}, ${column}: ${message} (${ruleId})`);
  console.log(JSON.stringify({ file, faults }));
}
