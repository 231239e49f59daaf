//! Access: by host name, origin and token.
//!
//! A page of any site can make a browser send requests to localhost. Such requests name a host that
//! is not ours, or say where they come from; both are refused before anything is looked at, the
//! token included.

use http::header::{AUTHORIZATION, ORIGIN};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Request};

use super::problem::{Kind, Refused};
use super::token::Token;
use crate::host_check::AcceptedHosts;

/// Access to the admin API.
#[derive(Debug)]
pub(super) struct Guard {
    pub(super) names: AcceptedHosts,
    pub(super) token: Token,
}

/// By what a request may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Its path needs no credential.
    Free,
    /// The admin token.
    Token,
}

impl Access {
    /// Identifies the credential, without being one.
    pub(super) fn credential(self) -> u64 {
        match self {
            Self::Free | Self::Token => 0,
        }
    }
}

impl Guard {
    /// By what this request may be answered, if it may.
    pub(super) fn check<B>(&self, request: &Request<B>) -> Result<Access, Refused> {
        let headers = request.headers();
        let is_ours = match request.uri().authority() {
            Some(authority) => self.names.accepts(authority),
            None => self.names.accepts_request(headers),
        };
        if !is_ours {
            let detail = "the `Host` of the request is no name of this server; add it to `server.hosts` if it is";
            return Err(Refused::new(Kind::WrongHost, detail));
        }
        if self.is_cross_site(headers) {
            let detail = "the request comes from a page of another site";
            return Err(Refused::new(Kind::CrossSite, detail));
        }
        if is_free(request.uri().path()) {
            return Ok(Access::Free);
        }
        if let Some(access) = self.credential(headers) {
            return Ok(access);
        }
        let detail =
            "send the token in `admin-token` of the data folder as `Authorization: Bearer TOKEN`";
        Err(Refused::new(Kind::NoToken, detail))
    }

    fn is_cross_site(&self, headers: &HeaderMap) -> bool {
        let site = headers.get(&SEC_FETCH_SITE);
        // `none` is what a person typed or opened.
        let is_elsewhere =
            site.is_some_and(|site| !matches!(site.as_bytes(), b"same-origin" | b"none"));
        let origin = headers.get(ORIGIN);
        is_elsewhere || origin.is_some_and(|origin| !self.is_own_page(origin.as_bytes()))
    }

    /// Is this the origin of a page of ours? It has our name; another port of it is another site,
    /// which the browser says in `Sec-Fetch-Site`.
    fn is_own_page(&self, origin: &[u8]) -> bool {
        let host = origin
            .strip_prefix(b"http://")
            .or_else(|| origin.strip_prefix(b"https://"));
        let authority = host.and_then(|host| Authority::try_from(host).ok());
        authority.is_some_and(|authority| self.names.accepts(&authority))
    }

    /// The credential of a request, if it has a valid one.
    fn credential(&self, headers: &HeaderMap) -> Option<Access> {
        self.has_token(headers).then_some(Access::Token)
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let Some(given) = headers.get(AUTHORIZATION) else {
            return false;
        };
        let given = given.as_bytes();
        let Some((scheme, token)) = given.split_at_checked("Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.token.is(token.trim_ascii())
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Paths that need no token, for supervisors of processes.
fn is_free(path: &str) -> bool {
    matches!(path, "/healthz" | "/readyz")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::Settings;

    fn check(path: &str, headers: &[(&str, &str)]) -> Option<Kind> {
        let settings = Settings::default();
        let guard = Guard {
            names: AcceptedHosts::new(&settings, settings.server.admin),
            token: Token::new("0123456789abcdef").unwrap(),
        };
        let mut request = Request::builder().uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        guard.check(&request).err().map(|refused| refused.kind)
    }

    const TOKEN: (&str, &str) = ("authorization", "Bearer 0123456789abcdef");
    const HOST: (&str, &str) = ("host", "127.0.0.1:7071");

    #[test]
    fn the_token_opens_everything_and_health_needs_none() {
        assert_eq!(check("/metrics", &[HOST, TOKEN]), None);
        assert_eq!(
            check("/x", &[HOST, ("authorization", "bearer  0123456789abcdef")]),
            None
        );
        assert_eq!(check("/healthz", &[HOST]), None);
        assert_eq!(check("/readyz", &[HOST]), None);
        for path in ["/metrics", "/openapi.json", "/healthz/", "/api/v1/gates"] {
            assert_eq!(check(path, &[HOST]), Some(Kind::NoToken), "{path}");
        }
        for wrong in [
            "Bearer 0123456789abcdeF",
            "Bearer ",
            "Basic 0123456789abcdef",
            "0123456789abcdef",
            "Bearer0123456789abcdef",
        ] {
            let given = ("authorization", wrong);
            assert_eq!(check("/x", &[HOST, given]), Some(Kind::NoToken), "{wrong}");
        }
    }

    #[test]
    fn pages_of_other_sites_are_refused_whatever_they_bring() {
        for path in ["/healthz", "/api/v1/gates"] {
            let evil = ("host", "evil.example.com");
            assert_eq!(check(path, &[evil, TOKEN]), Some(Kind::WrongHost));
            for from in [
                ("origin", "https://evil.example.com"),
                ("origin", "null"),
                ("sec-fetch-site", "cross-site"),
                ("sec-fetch-site", "same-site"),
            ] {
                assert_eq!(check(path, &[HOST, TOKEN, from]), Some(Kind::CrossSite));
            }
        }
    }

    #[test]
    fn our_own_pages_may_ask() {
        for from in [
            ("origin", "http://127.0.0.1:7071"),
            ("sec-fetch-site", "same-origin"),
            ("sec-fetch-site", "none"),
        ] {
            assert_eq!(check("/x", &[HOST, TOKEN, from]), None);
        }
    }
}
