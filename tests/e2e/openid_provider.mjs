// An OpenID provider: npm's oidc-provider, with its own pages for a login and a consent. Groups by the name of a person.
import Provider from 'oidc-provider';

const { PORT, CALLBACK } = process.env;
const issuer = `http://127.0.0.1:${PORT}`;
const groups = { olga: ['ops', 'staff'], dana: ['dev'], otto: ['sales'] };
const provider = new Provider(issuer, {
  clients: [{
    client_id: 'mcp-hub', client_secret: 'secret-of-the-hub-0123', redirect_uris: [CALLBACK],
    response_types: ['code'], grant_types: ['authorization_code'], token_endpoint_auth_method: 'client_secret_post',
  }],
  claims: { openid: ['sub'], groups: ['groups'] }, scopes: ['openid', 'groups'], conformIdTokenClaims: false,
  pkce: { required: () => true }, cookies: { keys: ['a-key-of-a-test'] },
  findAccount: (_, id) => ({ accountId: id, claims: () => ({ sub: id, groups: groups[id] ?? [] }) }),
});
provider.listen(Number(PORT), '127.0.0.1', () => console.log('listening'));
