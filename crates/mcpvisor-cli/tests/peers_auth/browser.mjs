// A person with Chromium: opens a URL, follows steps, and records the page where they end.
//
// Usage: node browser.mjs URL. The rest is in the environment:
//
// - VISIT_STEPS: a list of `{ "fill": { NAME: VALUE }, "press": TEXT }` in JSON
// - VISIT_PAGE: the file that gets `title` and `text` of the last page, or `error`
// - VISIT_PACKAGES: a folder `node_modules` with `playwright-core`
// - VISIT_CHROMIUM, VISIT_PROFILE: the browser, and a new folder for it

import { renameSync, writeFileSync } from 'node:fs';

// Also on a busy machine.
const TIME_LIMIT = 90_000;

const url = process.argv[2];
const {
  VISIT_STEPS: steps,
  VISIT_PAGE: file,
  VISIT_PACKAGES: packages,
  VISIT_CHROMIUM: executablePath,
  VISIT_PROFILE: profile,
} = process.env;
const { chromium } = (await import(`${packages}/playwright-core/index.js`)).default;

const args = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--disable-dev-shm-usage',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
  // Fonts of other hosts must not delay a page.
  '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1, EXCLUDE localhost',
];

async function visit(page) {
  page.setDefaultTimeout(TIME_LIMIT);
  const loaded = { waitUntil: 'domcontentloaded' };
  await page.goto(url, loaded);
  for (const { fill = {}, press } of JSON.parse(steps)) {
    for (const [name, value] of Object.entries(fill)) {
      await page.fill(`[name="${name}"]`, value);
    }
    const control = page.locator('button, a').filter({ hasText: press }).first();
    await Promise.all([page.waitForNavigation(loaded), control.click()]);
  }
  return { title: await page.title(), text: await page.innerText('body') };
}

async function run() {
  const options = { executablePath, args, headless: true, timeout: TIME_LIMIT };
  const browser = await chromium.launchPersistentContext(profile, options);
  try {
    return await visit(browser.pages()[0] ?? (await browser.newPage()));
  } finally {
    await browser.close();
  }
}

const ended = await run().catch((problem) => ({ error: String(problem) }));
writeFileSync(`${file}.new`, JSON.stringify(ended));
renameSync(`${file}.new`, file);
