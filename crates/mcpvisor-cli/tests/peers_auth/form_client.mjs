// A person without a browser: opens a URL, follows redirects, keeps cookies, submits forms.
//
// Usage: node form_client.mjs URL, with VISIT_STEPS and VISIT_PAGE as for `browser.mjs`.

import { renameSync, writeFileSync } from 'node:fs';

const MAX_REDIRECTS = 10;

const url = process.argv[2];
const { VISIT_STEPS: steps, VISIT_PAGE: file } = process.env;
const cookies = new Map();

// Opens a URL and returns the page where its redirects end.
async function open(target, body) {
  for (let redirects = 0; redirects <= MAX_REDIRECTS; redirects += 1) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const method = body ? 'POST' : 'GET';
    const answer = await fetch(target, { method, body, redirect: 'manual', headers: { cookie } });
    for (const line of answer.headers.getSetCookie()) {
      const [name, value] = line.split(';')[0].split(/=(.*)/s);
      cookies.set(name, value);
    }
    const location = answer.headers.get('location');
    if (!location) {
      return { url: target, html: await answer.text() };
    }
    target = new URL(location, target).href;
    body = undefined;
  }
  throw new Error('too many redirects');
}

const attribute = (tag, name) => tag.match(new RegExp(`\\s${name}="([^"]*)"`))?.[1];

// Follows the link, or submits the form, that shows a text.
function press(page, text, fill) {
  const links = page.html.match(/<a\s[^>]*>[^<]*<\/a>/g) ?? [];
  const link = links.find((it) => it.includes(text));
  if (link) {
    return open(new URL(attribute(link, 'href'), page.url).href);
  }
  const forms = page.html.match(/<form\s.*?<\/form>/gs) ?? [];
  const form = forms.find((it) => it.includes(text));
  if (!form) {
    throw new Error(`no ${text} on ${page.url}: ${page.html}`);
  }
  const fields = new URLSearchParams(fill);
  for (const input of form.match(/<input\s[^>]*type="hidden"[^>]*>/g) ?? []) {
    fields.set(attribute(input, 'name'), attribute(input, 'value'));
  }
  return open(new URL(attribute(form, 'action'), page.url).href, fields);
}

async function run() {
  let page = await open(url);
  for (const { fill = {}, press: text } of JSON.parse(steps)) {
    page = await press(page, text, fill);
  }
  const title = page.html.match(/<title>(.*?)<\/title>/s)?.[1];
  const body = page.html.replace(/.*<body[^>]*>/s, '').replace(/<[^>]*>/g, ' ');
  return { title, text: body };
}

const ended = await run().catch((problem) => ({ error: String(problem) }));
writeFileSync(`${file}.new`, JSON.stringify(ended));
renameSync(`${file}.new`, file);
