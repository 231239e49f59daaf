//! Access: by host name, origin and token.
//!
//! A page of any site can make a browser send requests to localhost. Such requests name a host that
//! is not ours, or say where they come from; both are refused before anything is looked at, the
//! token included. A link to a page of the console is the exception.
//!
//! The credential is the admin token in `Authorization`, or the cookie of a browser that has signed
//! in, for requests of the console's own pages.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, HOST, ORIGIN, TRANSFER_ENCODING};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, Method, Request};

use super::body::is_json;
use super::console;
use super::problem::{Kind, Refused};
use super::sign_in::{Cookies, SignInId};
use super::token::Token;
use crate::host_check::AcceptedHosts;

/// Access to the admin API.
#[derive(Debug)]
pub(super) struct Guard<'a> {
    pub(super) names: AcceptedHosts,
    pub(super) token: &'a Token,
    pub(super) cookies: &'a Cookies,
}

/// By what a request may be answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// Its path needs no credential.
    Free,
    /// The admin token.
    Token,
    /// The cookie of a browser that has signed in.
    SignIn(SignInId),
}

impl Access {
    /// Identifies the credential, without being one.
    pub(super) fn credential(self) -> u64 {
        match self {
            Self::Free | Self::Token => 0,
            Self::SignIn(SignInId(id)) => id,
        }
    }
}

impl Guard<'_> {
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
        // A link on another site may lead to a page: it holds no data.
        let path = request.uri().path();
        let is_link = is_top_level(request) && console::is_page(path) && !has_origin(headers);
        if self.is_cross_site(headers) && !is_link {
            return Err(cross_site("the request comes from a page of another site"));
        }
        if is_free(request) {
            return Ok(Access::Free);
        }
        if self.has_token(headers) {
            return Ok(Access::Token);
        }
        if let Some(id) = self.cookies.find(headers) {
            check_sent_by_own_page(request)?;
            return Ok(Access::SignIn(id));
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
        let authority = origin_host(origin).and_then(|host| Authority::try_from(host).ok());
        authority.is_some_and(|authority| self.names.accepts(&authority))
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
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// A cookie is sent by the browser, not by the page: so a request with one has to come from a page
/// of this origin, and a body has to be of a type that forms cannot send.
///
/// Browsers that send no `Sec-Fetch-Site` (it is left out for plain HTTP to other machines) send
/// `Origin` with every change. A `GET` with neither changes nothing, and another page cannot read
/// its answer.
fn check_sent_by_own_page<B>(request: &Request<B>) -> Result<(), Refused> {
    let headers = request.headers();
    let is_read = is_read(request.method());
    let is_own = match headers.get(&SEC_FETCH_SITE).map(|site| site.as_bytes()) {
        Some(b"same-origin") => true,
        Some(_) => is_top_level(request),
        None => match headers.get(ORIGIN) {
            Some(origin) => {
                let host = headers.get(HOST).map(|host| host.as_bytes());
                host.is_some() && origin_host(origin.as_bytes()) == host
            }
            None => is_read,
        },
    };
    if !is_own {
        let detail = "a cookie is accepted only from a page of this server";
        return Err(cross_site(detail));
    }
    let is_json = headers
        .get(CONTENT_TYPE)
        .is_some_and(|kind| is_json(kind.as_bytes()));
    if !is_read && has_body(headers) && !is_json {
        let detail = "expected `Content-Type: application/json`";
        return Err(Refused::new(Kind::NotJson, detail));
    }
    Ok(())
}

fn cross_site(detail: &str) -> Refused {
    Refused::new(Kind::CrossSite, detail)
}

/// Is this what a browser sends to show a page in a tab?
fn is_top_level<B>(request: &Request<B>) -> bool {
    let headers = request.headers();
    let is = |name, value: &str| headers.get(name).is_some_and(|found| found == value);
    is_read(request.method()) && is(SEC_FETCH_MODE, "navigate") && is(SEC_FETCH_DEST, "document")
}

fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

fn has_origin(headers: &HeaderMap) -> bool {
    headers.contains_key(ORIGIN)
}

fn has_body(headers: &HeaderMap) -> bool {
    let length = headers.get(CONTENT_LENGTH);
    headers.contains_key(TRANSFER_ENCODING) || length.is_some_and(|length| length != "0")
}

/// Host and port of an origin.
fn origin_host(origin: &[u8]) -> Option<&[u8]> {
    let https = || origin.strip_prefix(b"https://");
    origin.strip_prefix(b"http://").or_else(https)
}

/// Needs no credential: health, for supervisors of processes; the console's pages and files, which
/// hold no data; and signing in and out.
fn is_free<B>(request: &Request<B>) -> bool {
    let path = request.uri().path();
    match path {
        "/healthz" | "/readyz" | "/login" | "/logout" => true,
        _ => is_read(request.method()) && (console::is_page(path) || console::is_file(path)),
    }
}

#[cfg(test)]
mod tests {
    use tidegate::Clock;

    use super::*;
    use crate::settings::Settings;

    fn check(path: &str, headers: &[(&str, &str)]) -> Option<Kind> {
        send("GET", path, headers).err()
    }

    fn send(method: &str, path: &str, headers: &[(&str, &str)]) -> Result<Access, Kind> {
        let settings = Settings::default();
        let token = Token::new("0123456789abcdef").unwrap();
        let guard = Guard {
            names: AcceptedHosts::new(&settings, settings.server.admin),
            token: &token,
            cookies: &Cookies::new(token.clone(), 7071, Clock::system()),
        };
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(()).unwrap();
        guard.check(&request).map_err(|refused| refused.kind)
    }

    /// The cookie of a sign-in at the guard of these tests.
    fn cookie() -> String {
        let token = Token::new("0123456789abcdef").unwrap();
        Cookies::new(token, 7071, Clock::system()).issue_for_test()
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

    const SAME: (&str, &str) = ("sec-fetch-site", "same-origin");
    const CROSS: (&str, &str) = ("sec-fetch-site", "cross-site");
    const NAVIGATE: [(&str, &str); 2] = [
        ("sec-fetch-mode", "navigate"),
        ("sec-fetch-dest", "document"),
    ];

    #[test]
    fn link_on_another_site_leads_to_a_page_and_nowhere_else() {
        let link = [HOST, CROSS, NAVIGATE[0], NAVIGATE[1]];
        for page in ["/", "/login", "/gates/llm/a", "/operations/op_1"] {
            assert_eq!(check(page, &link), None, "{page}");
            let frame = [HOST, CROSS, NAVIGATE[0], ("sec-fetch-dest", "iframe")];
            assert_eq!(check(page, &frame), Some(Kind::CrossSite));
            let script = [HOST, CROSS, ("sec-fetch-mode", "no-cors")];
            assert_eq!(check(page, &script), Some(Kind::CrossSite));
            assert_eq!(send("POST", page, &link), Err(Kind::CrossSite));
            let origin = ("origin", "https://evil.example.com");
            let with_origin = [link.as_slice(), &[origin]].concat();
            assert_eq!(check(page, &with_origin), Some(Kind::CrossSite));
            let rebound = [
                ("host", "evil.example.com"),
                CROSS,
                NAVIGATE[0],
                NAVIGATE[1],
            ];
            assert_eq!(check(page, &rebound), Some(Kind::WrongHost));
        }
        let cookie = cookie();
        for other in ["/metrics", "/healthz", "/console/main.js", "/api/v1/gates"] {
            let with_cookie = [link.as_slice(), &[("cookie", &*cookie)]].concat();
            assert_eq!(check(other, &with_cookie), Some(Kind::CrossSite), "{other}");
        }
    }

    #[test]
    fn cookie_opens_calls_of_our_own_page() {
        let cookie = cookie();
        let cookie = ("cookie", &*cookie);
        let is_signed_in = |method, headers: &[(&str, &str)]| {
            let all = [&[HOST, cookie], headers].concat();
            let access = send(method, "/api/v1/gates", &all);
            assert!(
                matches!(access, Ok(Access::SignIn(_))),
                "{method} {headers:?}"
            );
        };
        let json = ("content-type", "application/json");
        let own = ("origin", "http://127.0.0.1:7071");
        let body = ("content-length", "2");
        is_signed_in("GET", &[SAME]);
        is_signed_in("GET", &[]);
        is_signed_in(
            "GET",
            &[("sec-fetch-site", "none"), NAVIGATE[0], NAVIGATE[1]],
        );
        is_signed_in("POST", &[SAME]);
        is_signed_in("POST", &[SAME, ("content-length", "0")]);
        is_signed_in("PUT", &[SAME, json, body]);
        is_signed_in("DELETE", &[own]);
        is_signed_in("PATCH", &[own, json, body]);
    }

    #[test]
    fn cookie_is_refused_unless_our_own_page_sent_the_request() {
        let cookie = cookie();
        let cookie = ("cookie", &*cookie);
        let check = |method, headers: &[(&str, &str)], kind| {
            let all = [&[HOST, cookie], headers].concat();
            let access = send(method, "/api/v1/gates", &all);
            assert_eq!(access, Err(kind), "{method} {headers:?}");
        };
        let (none, body) = (("sec-fetch-site", "none"), ("content-length", "2"));
        for method in ["POST", "PUT", "PATCH", "DELETE"] {
            check(method, &[], Kind::CrossSite);
            check(method, &[none, NAVIGATE[0], NAVIGATE[1]], Kind::CrossSite);
            check(method, &[CROSS], Kind::CrossSite);
            check(method, &[("sec-fetch-site", "same-site")], Kind::CrossSite);
            check(method, &[SAME, ("origin", "null")], Kind::CrossSite);
            // Another port of this host is another origin.
            check(
                method,
                &[("origin", "http://127.0.0.1:8080")],
                Kind::CrossSite,
            );
            check(method, &[SAME, body], Kind::NotJson);
            for kind in ["application/x-www-form-urlencoded", "text/plain"] {
                check(method, &[SAME, body, ("content-type", kind)], Kind::NotJson);
            }
            let chunked = ("transfer-encoding", "chunked");
            check(method, &[SAME, chunked], Kind::NotJson);
        }
        check(
            "GET",
            &[none, ("sec-fetch-mode", "no-cors")],
            Kind::CrossSite,
        );
        let forged = ("cookie", "tidegate-7071=99999999999.00.00");
        assert_eq!(send("GET", "/x", &[HOST, SAME, forged]), Err(Kind::NoToken));
    }

    #[test]
    fn pages_files_and_sign_in_need_no_credential() {
        for path in [
            "/",
            "/gates/x",
            "/console/main.js",
            "/console/none",
            "/healthz",
        ] {
            assert_eq!(send("GET", path, &[HOST]), Ok(Access::Free), "{path}");
        }
        for path in ["/login", "/logout"] {
            assert_eq!(send("POST", path, &[HOST]), Ok(Access::Free), "{path}");
            assert_eq!(send("POST", path, &[HOST, CROSS]), Err(Kind::CrossSite));
        }
        for path in ["/", "/gates", "/console/main.js"] {
            assert_eq!(send("POST", path, &[HOST]), Err(Kind::NoToken), "{path}");
        }
        for path in ["/version", "/console", "/openapi.json", "/r/x", "//"] {
            assert_eq!(check(path, &[HOST]), Some(Kind::NoToken), "{path}");
        }
    }
}
