//! Sign-in of a browser: the admin token is exchanged for a cookie.
//!
//! The cookie is not the token, for cookies ignore ports: other servers of this host receive it too.
//! Its value is the time at which it expires, random bits and an HMAC of both keyed by the token.
//! So nothing is stored, a sign-in survives a restart, and all of them end when the token is
//! replaced. The port in the cookie's name, which the HMAC covers, separates servers of one host.

use std::fmt;
use std::sync::Arc;

use axum::Extension;
use axum::response::{IntoResponse, Response};
use http::header::{COOKIE, LOCATION, SET_COOKIE};
use http::{HeaderMap, HeaderValue, StatusCode, Uri};
use ring::hmac;
use ring::rand::{SecureRandom, SystemRandom};
use tidegate::Clock;

use super::bodies::{Problem, SignIn};
use super::body::Fields;
use super::problem::{Kind, Refused};
use super::token::Token;

/// Makes and checks cookies of one listener.
pub(super) struct Cookies {
    name: String,
    key: hmac::Key,
    token: Token,
    clock: Clock,
    /// The listener speaks TLS, and a browser sends the cookie nowhere else.
    is_secure: bool,
}

/// A sign-in, as its cookie identifies it. Not secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SignInId(pub(super) u64);

/// How long a sign-in lasts, in seconds: a working day.
const MAX_AGE: i64 = 43_200;

const RANDOM_BYTES: usize = 16;

impl Cookies {
    pub(super) fn new(token: Token, port: u16, clock: Clock) -> Self {
        Self {
            name: format!("tidegate-{port}"),
            key: hmac::Key::new(hmac::HMAC_SHA256, token.expose().as_bytes()),
            token,
            clock,
            is_secure: false,
        }
    }

    /// The same for a listener that speaks TLS, or not.
    pub(super) fn secure(self, is_secure: bool) -> Self {
        Self { is_secure, ..self }
    }

    /// The sign-in whose cookie a request carries. A cookie that is forged, expired or of another
    /// token is none.
    pub(super) fn find(&self, headers: &HeaderMap) -> Option<SignInId> {
        let cookies = headers.get_all(COOKIE).iter();
        let cookies = cookies.filter_map(|header| header.to_str().ok());
        let mut values = cookies
            .flat_map(|header| header.split(';'))
            .filter_map(|cookie| {
                let (name, value) = cookie.trim().split_once('=')?;
                (name == self.name).then_some(value)
            });
        values.find_map(|value| self.check(value))
    }

    fn check(&self, value: &str) -> Option<SignInId> {
        let (signed, signature) = value.rsplit_once('.')?;
        let signature = decode(signature)?;
        hmac::verify(&self.key, &self.message(signed), &signature).ok()?;
        // What is signed has the form that `value` gave it.
        let (expiry, random) = signed.split_once('.')?;
        let expiry: i64 = expiry.parse().ok()?;
        let id = u64::from_str_radix(random.get(..16)?, 16).ok()?;
        (self.now() < expiry).then_some(SignInId(id))
    }

    /// The value of `Set-Cookie` for a new sign-in.
    fn issue(&self) -> Result<HeaderValue, Refused> {
        let mut random = [0; RANDOM_BYTES];
        let filled = SystemRandom::new().fill(&mut random);
        filled
            .map_err(|_| Refused::new(Kind::StoreUnavailable, "the system gives no randomness"))?;
        let value = self.value(self.now() + MAX_AGE, random);
        Ok(self.set_cookie(&value, MAX_AGE))
    }

    /// A cookie as a browser sends it.
    #[cfg(test)]
    pub(super) fn issue_for_test(&self) -> String {
        let header = self.issue().unwrap();
        let header = header.to_str().unwrap();
        header.split_once(';').unwrap().0.to_owned()
    }

    /// The value of `Set-Cookie` that makes a browser forget its sign-in.
    fn forget(&self) -> HeaderValue {
        self.set_cookie("", 0)
    }

    fn set_cookie(&self, value: &str, max_age: i64) -> HeaderValue {
        let name = &self.name;
        let secure = if self.is_secure { "; Secure" } else { "" };
        let cookie =
            format!("{name}={value}; HttpOnly; SameSite=Strict; Path=/; Max-Age={max_age}{secure}");
        HeaderValue::try_from(cookie).expect("digits and words")
    }

    fn value(&self, expiry: i64, random: [u8; RANDOM_BYTES]) -> String {
        let signed = format!("{expiry}.{}", encode(&random));
        let signature = hmac::sign(&self.key, &self.message(&signed));
        format!("{signed}.{}", encode(signature.as_ref()))
    }

    /// What is signed: never something that the token signs for another purpose.
    fn message(&self, signed: &str) -> Vec<u8> {
        format!("console sign-in\n{}\n{signed}", self.name).into_bytes()
    }

    /// Seconds of Unix time.
    fn now(&self) -> i64 {
        self.clock.wall().as_unix_millis().div_euclid(1000)
    }

    /// Answers a page's address that carries a token: to the same address without it, signed in.
    /// `None` if it carries none.
    pub(super) fn exchange(&self, uri: &Uri) -> Option<Response> {
        let (token, rest) = take_token(uri.query()?)?;
        if !self.token.is(token.as_bytes()) {
            return Some(redirect("/login?wrong", None));
        }
        let target = match rest.as_str() {
            "" => uri.path().to_owned(),
            rest => format!("{}?{rest}", uri.path()),
        };
        Some(match self.issue() {
            Ok(cookie) => redirect(&target, Some(cookie)),
            Err(refused) => refused.into_response(),
        })
    }
}

impl fmt::Debug for Cookies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cookies")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

/// The first token of a query, and the query without any.
fn take_token(query: &str) -> Option<(String, String)> {
    let mut token = None;
    let mut rest = Vec::new();
    for part in query.split('&') {
        match url::form_urlencoded::parse(part.as_bytes()).next() {
            Some((name, value)) if name == "token" => {
                token.get_or_insert_with(|| value.trim().to_owned());
            }
            _ => rest.push(part),
        }
    }
    token.map(|token| (token, rest.join("&")))
}

/// To a path of this server; the caller gives one that begins with the path of a page.
fn redirect(target: &str, cookie: Option<HeaderValue>) -> Response {
    let Ok(target) = HeaderValue::try_from(target) else {
        return Refused::new(Kind::BadRequest, "the address cannot be read").into_response();
    };
    let mut answer = StatusCode::SEE_OTHER.into_response();
    let headers = answer.headers_mut();
    headers.insert(LOCATION, target);
    if let Some(cookie) = cookie {
        headers.insert(SET_COOKIE, cookie);
    }
    answer
}

/// Sign a browser in
///
/// The answer sets a cookie that replaces the header `Authorization` for 12 hours, or until the
/// token is replaced. A page's address with `?token=` does the same.
#[utoipa::path(
    post, operation_id = "signIn", path = "/login", tag = "console", security(()),
    request_body = SignIn,
    responses(
        (status = 204, description = "Signed in: the cookie is set"),
        (status = 401, description = "The token is not valid here", body = Problem, content_type = "application/problem+json")
    )
)]
pub(super) async fn sign_in(
    Extension(cookies): Extension<Arc<Cookies>>,
    mut fields: Fields,
) -> Result<Response, Refused> {
    let token = read_token(&mut fields);
    if token.is_none() && !fields.has_problem("token") {
        fields.note("token", None, &format!("is missing, expected {A_TOKEN}"));
    }
    fields.end()?;
    let token = token.unwrap_or_default();
    if !cookies.token.is(token.trim().as_bytes()) {
        let detail = "this token is not valid here; it is in `admin-token` of the data folder";
        return Err(Refused::new(Kind::NoToken, detail));
    }
    let mut answer = StatusCode::NO_CONTENT.into_response();
    let cookie = cookies.issue()?;
    answer.headers_mut().insert(SET_COOKIE, cookie);
    Ok(answer)
}

fn read_token(fields: &mut Fields) -> Option<String> {
    fields.take_secret("token", A_TOKEN, |value| value.as_str().map(str::to_owned))
}

const A_TOKEN: &str = "the admin token";

/// Sign a browser out
///
/// The answer removes the cookie from the browser. A copy of its value stays valid until it
/// expires; replacing the token ends every sign-in.
#[utoipa::path(
    post, operation_id = "signOut", path = "/logout", tag = "console", security(()),
    responses((status = 204, description = "Signed out: the cookie is removed"))
)]
pub(super) async fn sign_out(Extension(cookies): Extension<Arc<Cookies>>) -> Response {
    let mut answer = StatusCode::NO_CONTENT.into_response();
    answer.headers_mut().insert(SET_COOKIE, cookies.forget());
    answer
}

fn encode(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn decode(digits: &str) -> Option<Vec<u8>> {
    let bytes = digits.as_bytes();
    if bytes.len() != 2 * 32 {
        return None;
    }
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| u8::try_from(digit(pair[0])? << 4 | digit(pair[1])?).ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKEN: &str = "0123456789abcdef";

    fn cookies(token: &str, port: u16) -> Cookies {
        Cookies::new(Token::new(token).unwrap(), port, Clock::system())
    }

    fn find(cookies: &Cookies, header: &str) -> Option<SignInId> {
        let mut headers = HeaderMap::new();
        headers.insert(COOKIE, HeaderValue::from_str(header).unwrap());
        cookies.find(&headers)
    }

    #[test]
    fn accepts_the_cookie_it_issued_among_others() {
        let cookies = cookies(TOKEN, 7071);
        let cookie = cookies.issue_for_test();
        let found = find(&cookies, &cookie).unwrap();
        assert_ne!(find(&cookies, &cookies.issue_for_test()), Some(found));
        let among = format!("a=b; tidegate-7072=x;tidegate-7071=stale; {cookie}; c");
        assert_eq!(find(&cookies, &among), Some(found));
        let whole = cookies.issue().unwrap();
        let (_, attributes) = whole.to_str().unwrap().split_once("; ").unwrap();
        assert_eq!(
            attributes,
            "HttpOnly; SameSite=Strict; Path=/; Max-Age=43200"
        );
        assert!(!whole.to_str().unwrap().contains(TOKEN));
        let secure = cookies.secure(true).issue().unwrap();
        assert!(
            secure
                .to_str()
                .unwrap()
                .ends_with("; Max-Age=43200; Secure")
        );
    }

    #[test]
    fn ignores_forged_expired_and_foreign_cookies() {
        let ours = cookies(TOKEN, 7071);
        let cookie = ours.issue_for_test();
        let (name, value) = cookie.split_once('=').unwrap();
        let refused = |value: &str| {
            let header = format!("{name}={value}");
            assert_eq!(find(&ours, &header), None, "{header}");
        };
        for end in 0..value.len() {
            refused(&value[..end]);
        }
        for place in 0..value.len() {
            let mut forged = value.as_bytes().to_vec();
            forged[place] = if forged[place] == b'1' { b'2' } else { b'1' };
            refused(std::str::from_utf8(&forged).unwrap());
        }
        refused(&format!("{value}0"));
        refused(&format!("{value}.{value}"));
        refused(TOKEN);
        refused("..");
        let (_, rest) = value.split_once('.').unwrap();
        refused(&format!("99999999999.{rest}"));
        let random = [7; RANDOM_BYTES];
        let now = ours.now();
        assert!(ours.check(&ours.value(now + 60, random)).is_some());
        for expiry in [now, now - 1, 0, i64::MIN] {
            refused(&ours.value(expiry, random));
        }
    }

    #[test]
    fn cookie_ends_with_the_token_and_belongs_to_one_port() {
        let cookie = cookies(TOKEN, 7071).issue_for_test();
        assert!(find(&cookies(TOKEN, 7071), &cookie).is_some());
        assert_eq!(find(&cookies("another-admin-token", 7071), &cookie), None);
        assert_eq!(find(&cookies(TOKEN, 7072), &cookie), None);
        let renamed = cookie.replace("tidegate-7071", "tidegate-7072");
        assert_eq!(find(&cookies(TOKEN, 7072), &renamed), None);
    }

    #[test]
    fn takes_the_token_out_of_a_query() {
        let check = |query: &str, expected: Option<(&str, &str)>| {
            let taken = take_token(query);
            let taken = taken.as_ref().map(|(token, rest)| (&**token, &**rest));
            assert_eq!(taken, expected, "{query}");
        };
        check("token=a", Some(("a", "")));
        check(
            "state=open&token=a&sort=p95",
            Some(("a", "state=open&sort=p95")),
        );
        check("filter=%26&t%6Fken=a%2Bb", Some(("a+b", "filter=%26")));
        check("token=a&token=b", Some(("a", "")));
        check("token", Some(("", "")));
        check("tokens=a", None);
        check("", None);
    }

    #[test]
    fn redirects_to_the_same_page_of_this_server() {
        let cookies = cookies(TOKEN, 7071);
        let check = |uri: &str, expected: Option<(&str, bool)>| {
            let answer = cookies.exchange(&uri.parse().unwrap());
            let found = answer.as_ref().map(|answer| {
                assert_eq!(answer.status(), StatusCode::SEE_OTHER);
                let location = answer.headers()[LOCATION].to_str().unwrap();
                (location, answer.headers().contains_key(SET_COOKIE))
            });
            assert_eq!(found, expected, "{uri}");
        };
        check("/?token=0123456789abcdef", Some(("/", true)));
        check(
            "/gates/llm/a?request=1&token=0123456789abcdef&x=%2F",
            Some(("/gates/llm/a?request=1&x=%2F", true)),
        );
        check(
            "http://evil.example.com/gates?token=0123456789abcdef",
            Some(("/gates", true)),
        );
        check("/gates?token=wrong", Some(("/login?wrong", false)));
        check("/gates?token=", Some(("/login?wrong", false)));
        check("/gates?sort=key", None);
        check("/", None);
    }
}
