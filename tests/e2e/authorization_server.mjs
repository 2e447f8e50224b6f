// An authorization server: npm's oidc-provider, with its own pages for a login and a consent. Tokens are JWTs for one
// resource each. /test/… is for tests: what was asked for, the lifetime of tokens, and the end of a person's logins.
import Provider from 'oidc-provider';

const { PORT, RESOURCES, MACHINE } = process.env;
const issuer = `http://127.0.0.1:${PORT}`;
const resources = RESOURCES.split(' ');
const seen = [];
let seconds = 3600;

const resourceServer = (resource) => ({
  scope: 'whoami', audience: resource, accessTokenFormat: 'jwt', accessTokenTTL: seconds, jwt: { sign: { alg: 'RS256' } },
});
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'machine', client_secret: MACHINE, redirect_uris: [], response_types: [], grant_types: ['client_credentials'],
    scope: 'whoami',
  }],
  scopes: ['openid', 'offline_access', 'whoami'], claims: { openid: ['sub', 'preferred_username'] },
  conformIdTokenClaims: false, pkce: { required: () => true }, rotateRefreshToken: true,
  cookies: { keys: ['a-key-of-a-test'] },
  features: {
    clientCredentials: { enabled: true }, registration: { enabled: true }, revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => {
        if (!resources.includes(resource)) throw new Provider.errors.InvalidTarget();
        return resourceServer(resource);
      },
    },
  },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, preferred_username: `${id}@example.com` }) }),
});

provider.use(async (ctx, next) => {
  const url = new URL(ctx.url, issuer);
  if (url.pathname === '/test/seen') {
    ctx.body = seen;
  } else if (url.pathname === '/test/seconds') {
    seconds = Number(url.searchParams.get('is'));
    ctx.body = {};
  } else if (url.pathname === '/test/end') {
    for (const { grant } of seen.filter(({ person }) => person === url.searchParams.get('person'))) {
      await (await provider.Grant.find(grant))?.destroy();
      await provider.RefreshToken.revokeByGrantId(grant);
    }
    ctx.body = {};
  } else {
    await next();
    const { route, params = {}, client, entities = {} } = ctx.oidc ?? {};
    if (['token', 'revocation', 'registration'].includes(route)) {
      seen.push({
        route, status: ctx.status, type: params.grant_type, resource: params.resource, hint: params.token_type_hint,
        person: entities.Account?.accountId, grant: entities.Grant?.jti, token: params.refresh_token ?? params.token,
        error: ctx.body?.error, description: ctx.body?.error_description, client: client?.clientId,
      });
    }
  }
});
provider.listen(Number(PORT), '127.0.0.1');
