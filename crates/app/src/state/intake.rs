//! Accepts operations: checks what is to be sent and stores it. An operation that was accepted is
//! durable; of one that was refused nothing is stored.

use std::time::Duration;

use http::{HeaderName, HeaderValue, Method};
use policy::time::WallTime;
use ring::digest;
use ring::rand::{SecureRandom, SystemRandom};
use store::StoreError;
use store::operations::{Headers, Inserted, NewOperation, StoredOperation, StoredRequest};
use url::Url;

use super::State;
use super::changes::{ChangeError, InvalidValue};
use crate::exchange::cost::{COST, parse_cost};
use crate::exchange::path;
use crate::settings::{self, DEFAULT_OPERATION, OperationType};

/// A request to be delivered as an operation.
#[derive(Clone, Default)]
pub struct OperationRequest {
    /// Its type; `None`: `default`.
    pub kind: Option<String>,
    /// The method.
    pub method: String,
    /// A URL, or `/POOL/rest` for a pool of the gateway.
    pub url: String,
    /// Headers in order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
    /// The key under which the server knows a second copy; without one it is the operation's id.
    pub idempotency_key: Option<String>,
    /// The client of the data plane that sent it; empty for the admin API.
    pub client: String,
    /// The name of a credential, instead of the type's.
    pub credential: Option<String>,
    /// The name of a backoff, instead of the type's.
    pub backoff: Option<String>,
    /// How long until it expires, instead of the type's.
    pub expires_after: Option<Duration>,
    /// Operations with the same order key are sent one at a time.
    pub order_key: Option<String>,
    /// Higher leaves first; from -100 to 100.
    pub priority: i32,
    /// The document that the edit started from.
    pub base: Option<Vec<u8>>,
    /// The URL whose GET returns what the server has.
    pub resource: Option<String>,
}

/// An operation that is stored.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// The operation.
    pub operation: StoredOperation,
    /// It was stored before, under the same idempotency key.
    pub is_known: bool,
}

/// Why an operation was not accepted. Nothing was stored.
#[derive(Debug, thiserror::Error)]
pub enum AcceptError {
    /// Some values are invalid.
    #[error("{} invalid", if .0.len() == 1 { "a value is" } else { "some values are" })]
    Invalid(Vec<InvalidValue>),
    /// The address must not be dialled.
    #[error("`{0}` is not a public address; allow it in `[network]` if that is meant")]
    AddressNotAllowed(String),
    /// The body is longer than the type allows.
    #[error(
        "the body has {length} bytes, at most {most} are accepted (`operation.{kind}.max_body`)"
    )]
    BodyTooLarge {
        /// How long it is.
        length: usize,
        /// How long it may be.
        most: u64,
        /// The type.
        kind: String,
    },
    /// As many operations are stored as may be.
    #[error(
        "{most} operations are stored, as many as may be (`storage.max_operations`); completed and cancelled ones do not count"
    )]
    TooMany {
        /// How many may be.
        most: u64,
    },
    /// The idempotency key was used for another request.
    #[error("the idempotency key was used for another request")]
    KeyReused,
    /// It cannot be stored.
    #[error("the operation cannot be stored, so it was not accepted: {0}")]
    Store(#[from] StoreError),
}

impl State {
    /// Checks a request and stores it as an operation. Ready when it is durable.
    ///
    /// # Errors
    ///
    /// If it is not accepted; then nothing was stored.
    pub async fn accept_operation(
        &self,
        request: OperationRequest,
    ) -> Result<Accepted, AcceptError> {
        let operation = self.check_operation(request)?;
        let most = self.configuration().settings().storage.size.max_operations;
        if self.operations().counts().unresolved() >= most {
            return Err(AcceptError::TooMany { most });
        }
        match self.operations().insert(operation).await? {
            Inserted::New(operation) => {
                self.announce(&operation);
                let is_known = false;
                Ok(Accepted {
                    operation,
                    is_known,
                })
            }
            Inserted::Same(operation) => {
                let is_known = true;
                Ok(Accepted {
                    operation,
                    is_known,
                })
            }
            Inserted::OtherRequest => Err(AcceptError::KeyReused),
        }
    }

    /// The operation as it is stored, if everything about the request is valid.
    pub(crate) fn check_operation(
        &self,
        request: OperationRequest,
    ) -> Result<NewOperation, AcceptError> {
        let configuration = self.configuration();
        let settings = configuration.settings();
        let mut invalid = Invalid::default();
        let kind = request.kind.as_deref().unwrap_or(DEFAULT_OPERATION);
        let operation_type = settings.operation(kind);
        if !settings.operations.contains_key(kind) {
            let known: Vec<&str> = settings.operations.keys().map(String::as_str).collect();
            let expected = format!("a configured type: `{}`", known.join("`, `"));
            let shown: String = kind.chars().take(100).collect();
            invalid.add("type", &shown, &expected);
        }
        check_known(
            &mut invalid,
            "credential",
            request.credential.as_deref(),
            |name| settings.credentials.contains_key(name),
        );
        check_known(
            &mut invalid,
            "backoff",
            request.backoff.as_deref(),
            |name| settings.backoffs.contains_key(name),
        );
        let mut credential = request.credential.clone();
        credential = credential.or_else(|| operation_type.credential.clone());
        let method = check_method(&mut invalid, &request.method);
        let destination = match read_target(&request.url) {
            Ok(Target::Pool(pool)) if configuration.pool(pool).is_none() => {
                invalid.add("url", pool, "the name of a pool behind the first `/`");
                None
            }
            Ok(Target::Pool(pool)) => {
                let pool_settings = settings.pools.get(pool);
                credential = credential.or_else(|| pool_settings?.credential.clone());
                Some((format!("/{pool}"), None))
            }
            Ok(Target::Host(key, url)) => Some((key, Some(url))),
            Err(expected) => {
                invalid.add("url", &shown_target(&request.url), expected);
                None
            }
        };
        let resource = request.resource.as_deref().and_then(|text| {
            let checked = check_url(text);
            let invalid_url = |expected| invalid.add("resource", &shown_target(text), expected);
            checked.map_err(invalid_url).ok()
        });
        let (headers, header_key) = check_headers(&mut invalid, &request.headers);
        let key = check_key(&mut invalid, request.idempotency_key.clone(), header_key);
        check_text(&mut invalid, "order_key", request.order_key.as_deref());
        if !(-MAX_PRIORITY..=MAX_PRIORITY).contains(&request.priority) {
            let expected = format!("a number from -{MAX_PRIORITY} to {MAX_PRIORITY}");
            invalid.add("priority", &request.priority.to_string(), &expected);
        }
        if request.expires_after.is_some_and(|time| time.is_zero()) {
            invalid.add("expires_after", "0s", "a duration longer than zero");
        }
        let (Some((destination, url)), true) = (destination, invalid.is_empty()) else {
            return Err(invalid.into());
        };
        let known = credential
            .as_ref()
            .and_then(|name| settings.credentials.get(name));
        for url in [url.as_ref(), resource.as_ref()].into_iter().flatten() {
            self.check_operation_address(url)?;
            if known.is_some_and(|credential| !credential.is_for(url)) {
                let name = credential.as_deref().unwrap_or_default();
                invalid.add(
                    "credential",
                    name,
                    "one whose `hosts` have the host of the URL",
                );
                return Err(invalid.into());
            }
        }
        let length = request
            .body
            .len()
            .max(request.base.as_ref().map_or(0, Vec::len));
        if length as u64 > operation_type.max_body {
            let (most, kind) = (operation_type.max_body, kind.to_owned());
            return Err(AcceptError::BodyTooLarge { length, most, kind });
        }
        let now = self.clock().wall();
        Ok(new_operation(
            request,
            operation_type,
            Checked {
                method,
                destination,
                headers,
                key,
                credential,
            },
            now,
        ))
    }

    /// An address that is written out is judged now; a name when it is dialled.
    fn check_operation_address(&self, url: &Url) -> Result<(), AcceptError> {
        self.check_address(url).map_err(|error| match error {
            ChangeError::AddressNotAllowed(host) => AcceptError::AddressNotAllowed(host),
            // Nothing else is checked there.
            error => AcceptError::AddressNotAllowed(error.to_string()),
        })
    }
}

/// What was checked of a request, in the form in which it is stored.
struct Checked {
    method: String,
    destination: String,
    headers: Headers,
    key: Option<String>,
    credential: Option<String>,
}

fn new_operation(
    request: OperationRequest,
    operation_type: &OperationType,
    checked: Checked,
    now: WallTime,
) -> NewOperation {
    let id = new_operation_id(now);
    let fingerprint = fingerprint(&request, &checked);
    NewOperation {
        idempotency_key: checked.key.unwrap_or_else(|| id.clone()),
        summary: format!("{} {}", checked.method, shown_target(&request.url)),
        trace_id: Some(trace_id(&checked.headers).unwrap_or_else(new_trace_id)),
        fingerprint,
        destination: checked.destination,
        kind: request.kind.unwrap_or_else(|| DEFAULT_OPERATION.to_owned()),
        client: request.client,
        credential: checked.credential,
        backoff: request.backoff,
        order_key: request.order_key,
        priority: request.priority,
        accepted_at: now,
        expires_at: now
            + request
                .expires_after
                .unwrap_or(operation_type.expires_after),
        retain: operation_type.retain,
        is_reported: operation_type.webhook.is_some(),
        request: StoredRequest {
            method: checked.method,
            url: request.url,
            headers: checked.headers,
            body: request.body,
            base: request.base,
            resource: request.resource,
        },
        id,
    }
}

const MAX_PRIORITY: i32 = 100;

/// The longest URL, and the longest idempotency or order key, in characters.
const MAX_URL: usize = 8192;
const MAX_KEY: usize = 255;

/// Where an operation goes.
enum Target<'a> {
    /// The key of its gate, and its URL.
    Host(String, Url),
    /// The name of a pool.
    Pool(&'a str),
}

fn read_target(text: &str) -> Result<Target<'_>, &'static str> {
    if text.starts_with('/') {
        let split = path::split(text).filter(|_| text.len() <= MAX_URL);
        let split = split.filter(|_| text.parse::<http::uri::PathAndQuery>().is_ok());
        let pool = split.map(|split| Target::Pool(split.pool));
        return pool.ok_or("`/`, the name of a pool and a path, or a URL");
    }
    let url = check_url(text)?;
    let key = policy::key::normalize(url.as_str()).map_err(|_| "a URL with a host")?;
    Ok(Target::Host(key, url))
}

fn check_url(text: &str) -> Result<Url, &'static str> {
    if text.len() > MAX_URL {
        return Err("a URL of at most 8192 bytes");
    }
    settings::http_url(text)
}

/// A target as it may be shown: paths and queries can hold secrets.
fn shown_target(text: &str) -> String {
    let Some(path) = text.strip_prefix('/') else {
        // Of what has no scheme nothing is known to be harmless.
        return match text.contains("://") {
            true => settings::shown_url(text).chars().take(200).collect(),
            false => String::new(),
        };
    };
    let pool = path.split(['/', '?']).next().unwrap_or(path);
    format!("/{}/…", pool.chars().take(100).collect::<String>())
}

fn check_method(invalid: &mut Invalid, text: &str) -> String {
    let method = Method::from_bytes(text.to_ascii_uppercase().as_bytes());
    match method {
        Ok(method) if method != Method::CONNECT && text.len() <= 32 => method.to_string(),
        _ => {
            let shown: String = text.chars().take(32).collect();
            invalid.add("method", &shown, "an HTTP method such as `POST`");
            String::new()
        }
    }
}

fn check_known(
    invalid: &mut Invalid,
    field: &str,
    name: Option<&str>,
    is_known: impl Fn(&str) -> bool,
) {
    if let Some(name) = name.filter(|name| !is_known(name)) {
        let shown: String = name.chars().take(100).collect();
        invalid.add(field, &shown, &format!("a configured `[{field}.NAME]`"));
    }
}

fn check_text(invalid: &mut Invalid, field: &str, text: Option<&str>) {
    let is_valid = |text: &str| !text.is_empty() && text.chars().count() <= MAX_KEY;
    if text.is_some_and(|text| !is_valid(text)) {
        invalid.add(field, "", "1 to 255 characters");
    }
}

/// The headers as they are stored, and the value of `Idempotency-Key` among them.
fn check_headers(invalid: &mut Invalid, headers: &[(String, String)]) -> (Headers, Vec<String>) {
    let mut checked = Vec::new();
    let mut keys = Vec::new();
    if headers.len() > MAX_HEADERS {
        invalid.add("headers", "", "at most 100 headers");
        return (checked, keys);
    }
    for (name, value) in headers {
        let valid = HeaderValue::from_bytes(value.as_bytes());
        let (Ok(parsed), Ok(_)) = (name.parse::<HeaderName>(), valid) else {
            invalid.header(name, "a valid header");
            continue;
        };
        if parsed == "idempotency-key" {
            keys.push(value.clone());
        } else if parsed == COST && parse_cost(value).is_none() {
            invalid.header(name, "a whole number from 1 to 4294967295");
        } else if is_forbidden(parsed.as_str()) {
            invalid.header(
                name,
                "another header; this one is set for every request anyway",
            );
        } else {
            checked.push((parsed.to_string(), value.clone().into_bytes()));
        }
    }
    (checked, keys)
}

const MAX_HEADERS: usize = 100;

/// Headers of a connection, and those that are ours.
fn is_forbidden(name: &str) -> bool {
    const FORBIDDEN: [&str; 11] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "upgrade",
    ];
    let is_ours = name.starts_with("tidegate-") && name != COST.as_str();
    FORBIDDEN.contains(&name) || name == "expect" || is_ours
}

/// The one idempotency key, whether it was given as a field or as a header.
fn check_key(
    invalid: &mut Invalid,
    field: Option<String>,
    mut headers: Vec<String>,
) -> Option<String> {
    headers.dedup();
    let key = match (field, headers.as_slice()) {
        (None, []) => return None,
        (Some(key), []) => key,
        (None, [key]) => key.clone(),
        (Some(key), [header]) if key == *header => key,
        _ => {
            invalid.header("idempotency-key", "one idempotency key");
            return None;
        }
    };
    let is_valid = !key.is_empty() && key.len() <= MAX_KEY && HeaderValue::from_str(&key).is_ok();
    if !is_valid {
        let expected = "1 to 255 characters that a header may have";
        invalid.add("idempotency_key", "", expected);
        return None;
    }
    Some(key)
}

/// Identifies what is sent: a key that comes again with another fingerprint is a mistake.
fn fingerprint(request: &OperationRequest, checked: &Checked) -> Vec<u8> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut add = |part: &[u8]| {
        context.update(&(part.len() as u64).to_be_bytes());
        context.update(part);
    };
    add(request
        .kind
        .as_deref()
        .unwrap_or(DEFAULT_OPERATION)
        .as_bytes());
    add(checked.method.as_bytes());
    add(request.url.as_bytes());
    add(&request.body);
    for (name, value) in &checked.headers {
        // Each send of a client may have another one.
        if name != "traceparent" && name != "tracestate" && name != COST.as_str() {
            add(name.as_bytes());
            add(value);
        }
    }
    context.finish().as_ref().to_vec()
}

/// The trace that the caller says the request belongs to.
fn trace_id(headers: &Headers) -> Option<String> {
    let (_, parent) = headers.iter().find(|(name, _)| name == "traceparent")?;
    let id = std::str::from_utf8(parent).ok()?.split('-').nth(1)?;
    let is_id = id.len() == 32 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

fn new_trace_id() -> String {
    let bytes = random_bytes::<16>();
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The id of a new operation.
pub fn new_operation_id(now: WallTime) -> String {
    new_id("op_", now)
}

/// A prefix and 26 letters and digits: the time, so that ids sort as they were made, and 80 random
/// bits.
pub(crate) fn new_id(prefix: &str, now: WallTime) -> String {
    let millis = u64::try_from(now.as_unix_millis()).unwrap_or(0);
    let mut bits = u128::from(millis);
    for byte in random_bytes::<10>() {
        bits = (bits << 8) | u128::from(byte);
    }
    format!("{prefix}{}", digits(bits))
}

/// 26 letters and digits that cannot be guessed: 128 random bits.
pub(crate) fn new_slug() -> String {
    digits(u128::from_be_bytes(random_bytes()))
}

fn digits(bits: u128) -> String {
    const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";
    let digit = |place: u32| usize::try_from((bits >> (5 * place)) & 31).unwrap_or(0);
    let places = (0..26).rev();
    places
        .map(|place| char::from(DIGITS[digit(place)]))
        .collect()
}

pub(super) fn random_bytes<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    SystemRandom::new()
        .fill(&mut bytes)
        .expect("the system has random bytes");
    bytes
}

/// Everything that is invalid about a request.
#[derive(Default)]
struct Invalid(Vec<InvalidValue>);

impl Invalid {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn add(&mut self, field: &str, value: &str, expected: &str) {
        self.0.push(InvalidValue {
            field: field.to_owned(),
            value: (!value.is_empty()).then(|| value.to_owned()),
            expected: match value.is_empty() {
                true => format!("expected {expected}"),
                false => expected.to_owned(),
            },
        });
    }

    /// Without its value, which may be a secret.
    fn header(&mut self, name: &str, expected: &str) {
        let name: String = name.chars().take(100).collect();
        self.add(&format!("headers.{name}"), "", expected);
    }
}

impl From<Invalid> for AcceptError {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid.0)
    }
}

impl std::fmt::Debug for OperationRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OperationRequest")
            .field("kind", &self.kind)
            .finish_non_exhaustive()
    }
}
