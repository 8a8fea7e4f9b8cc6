// An authorization server on npm's `oidc-provider`: dynamic registration, resource indicators, and
// rotation that revokes a grant when a refresh token is used twice.
//
// Usage: node issuer.mjs PACKAGES LIFETIME, where PACKAGES is a folder `node_modules` and LIFETIME
// that of access tokens in seconds. It prints its URL, then one line of JSON per event. The line
// `revoke` on stdin revokes every grant, and is confirmed by `done`. It ends with its stdin.

import { createServer } from 'node:http';
import { createInterface } from 'node:readline';

const [packages, lifetime] = process.argv.slice(2);
// It warns of every default that is for development only.
console.info = console.warn = () => {};
const { default: Provider } = await import(`${packages}/oidc-provider/lib/index.js`);

const print = (line) => process.stdout.write(`${line}\n`);
const report = (event, fields = {}) =>
  print(JSON.stringify({ event, at: Date.now(), ...fields }));

const server = createServer();
await new Promise((listening) => server.listen(0, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;
const scope = 'mcp mcp:write';
const resource = (ctx, indicator) => ({
  audience: indicator,
  scope,
  accessTokenFormat: 'jwt',
  accessTokenTTL: Number(lifetime),
});
const provider = new Provider(issuer, {
  features: {
    registration: { enabled: true },
    revocation: { enabled: true },
    deviceFlow: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: resource,
      useGrantedResource: () => true,
    },
  },
  scopes: ['offline_access', ...scope.split(' ')],
  issueRefreshToken: () => true,
  rotateRefreshToken: true,
});
server.on('request', provider.callback());

const grants = new Set();
const presented = (ctx) => ctx.oidc.params?.refresh_token?.slice(-8);
const granted = (ctx) => ctx.oidc.params.grant_type;
provider.on('registration_create.success', () => report('registered'));
provider.on('grant.success', (ctx) => {
  grants.add(ctx.oidc.entities.Grant.jti);
  report('granted', { type: granted(ctx), token: presented(ctx) });
});
provider.on('grant.error', (ctx, error) =>
  report('refused', { type: granted(ctx), token: presented(ctx), error: error.error }));
provider.on('grant.revoked', () => report('revoked'));

async function revoke() {
  for (const grant of grants) {
    await provider.RefreshToken.revokeByGrantId(grant);
    await provider.Grant.adapter.destroy(grant);
  }
  grants.clear();
  print('done');
}

createInterface({ input: process.stdin })
  .on('line', (line) => line === 'revoke' && revoke())
  .on('close', () => process.exit());
print(issuer);
