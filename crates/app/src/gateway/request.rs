//! Reads the head of a request: which pool it is for, and what is sent to the endpoint.

use std::mem;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, header};
use policy::duration;
use policy::item::ItemKind;

use super::cross_site::{Source, is_preflight, preflight_headers};
use super::error::GatewayError;
use super::forward::{self, ProxiedRequest};
use super::headers;
use super::operation::{self, OperationLookup};
use super::routes::{Route, Routes};
use super::serving::Serving;
use super::shared::SharedGateway;
use super::upgrade::{self, UpgradeRequest};
use crate::exchange::cost::{COST, parse_cost};
use crate::exchange::{declared_length, path};
use crate::observe::TraceContext;

/// A request for a pool, without its body.
#[derive(Debug)]
pub(super) struct ParsedRequest {
    pub(super) route: Arc<Route>,
    pub(super) method: Method,
    /// The path as the client sent it, and the query. It shares the memory of the head.
    path: PathAndQuery,
    /// How long the part of it is that names the pool.
    pool_length: usize,
    pub(super) headers: RequestHeaders,
    pub(super) kind: ItemKind,
    /// What it costs, if the client says so.
    pub(super) cost: Option<u32>,
    /// The client that wants it to become an operation.
    pub(super) operation_of: Option<String>,
    /// It asks for another protocol on its connection.
    pub(super) is_upgrade: bool,
    /// Its place in the trace, if traces are exported; boxed, because most are not.
    pub(super) trace: Option<Box<TraceContext>>,
}

impl ParsedRequest {
    /// The path behind the pool's name, and the query.
    pub(super) fn rest(&self) -> &str {
        &self.path.as_str()[self.pool_length..]
    }
}

/// The headers of a request, for each of its attempts.
#[derive(Debug)]
pub(super) struct RequestHeaders(Mutex<KeptHeaders>);

#[derive(Debug)]
enum KeptHeaders {
    /// No attempt has them yet.
    Whole(HeaderMap),
    /// One has, and nearly always the last. A list takes less than a copy of the map.
    List(Vec<(HeaderName, HeaderValue)>),
}

impl RequestHeaders {
    pub(super) fn new(headers: HeaderMap) -> Self {
        Self(Mutex::new(KeptHeaders::Whole(headers)))
    }

    /// The headers for one attempt. The first gets the map that was read into, because that
    /// one has room for more: the response is read into it as well, and a copy would grow several times.
    pub(super) fn for_attempt(&self) -> HeaderMap {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let list = match &mut *kept {
            KeptHeaders::List(list) => return list.iter().cloned().collect(),
            KeptHeaders::Whole(headers) => {
                let fields = headers.iter();
                fields
                    .map(|(name, value)| (name.clone(), value.clone()))
                    .collect()
            }
        };
        match mem::replace(&mut *kept, KeptHeaders::List(list)) {
            KeptHeaders::Whole(headers) => headers,
            KeptHeaders::List(list) => list.into_iter().collect(),
        }
    }

    pub(super) fn into_inner(self) -> HeaderMap {
        let kept = self.0.into_inner();
        match kept.unwrap_or_else(PoisonError::into_inner) {
            KeptHeaders::Whole(headers) => headers,
            KeptHeaders::List(list) => list.into_iter().collect(),
        }
    }
}

/// Which of the headers that the gateway looks at a request has. Most have none, and to look each of
/// them up took 1 300 instructions; one pass over the names takes about 35 for each header.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RareHeaders {
    /// `Origin` or `Sec-Fetch-Site`.
    pub(super) source: bool,
    pub(super) expect: bool,
    pub(super) trace: bool,
    max_wait: bool,
    cost: bool,
    prefer: bool,
    via: bool,
    idempotency_key: bool,
    upgrade: bool,
}

impl RareHeaders {
    pub(super) fn new(headers: &HeaderMap) -> Self {
        let mut rare = Self::default();
        for name in headers.keys() {
            match name.as_str() {
                "origin" | "sec-fetch-site" => rare.source = true,
                "expect" => rare.expect = true,
                "traceparent" => rare.trace = true,
                "tidegate-max-wait" => rare.max_wait = true,
                "tidegate-cost" => rare.cost = true,
                "prefer" => rare.prefer = true,
                "via" => rare.via = true,
                "idempotency-key" => rare.idempotency_key = true,
                "upgrade" => rare.upgrade = true,
                _ => {}
            }
        }
        rare
    }
}

/// What the head of a request asks for.
pub(super) enum Parsed {
    /// Something of a pool.
    Request(ParsedRequest),
    /// The same, with another protocol afterwards.
    Upgrade(Box<UpgradeRequest>),
    /// Something of another server, in forward mode.
    Proxied(Box<ProxiedRequest>),
    /// The state of an operation, with this method.
    Operation(Method, OperationLookup),
    /// Whether a web page may send a request; with the headers of the response.
    Preflight(HeaderMap),
}

/// Reads the head of a request that comes from `source`, and checks that it may be served. Takes its
/// headers.
pub(super) fn parse<B>(
    shared: &SharedGateway,
    routes: &Routes,
    serving: &Serving,
    source: &Source,
    rare: RareHeaders,
    request: &mut Request<B>,
) -> Result<Parsed, GatewayError> {
    let checked = routes.guard().check(request, source)?;
    if let Some(target) = checked.target {
        if shared.is_draining() {
            return Err(GatewayError::Draining);
        }
        let parsed = forward::parse(
            shared,
            routes,
            serving,
            *target,
            checked.client,
            rare,
            request,
        )?;
        return Ok(Parsed::Proxied(Box::new(parsed)));
    }
    if is_preflight(request) {
        return Ok(Parsed::Preflight(preflight_headers(request.headers())));
    }
    if shared.is_draining() {
        return Err(GatewayError::Draining);
    }
    let sent_path = request.uri().path_and_query();
    let sent_path = sent_path.ok_or_else(|| no_route(routes))?;
    let path = sent_path.as_str();
    if let Some(id) = path.strip_prefix(operation::PREFIX) {
        let lookup = OperationLookup {
            id: id.into(),
            client: routes.guard().client_name(checked.client),
        };
        return Ok(Parsed::Operation(request.method().clone(), lookup));
    }
    let split = path::split(path).ok_or_else(|| no_route(routes))?;
    let route = routes.route(split.pool).ok_or_else(|| no_route(routes))?;
    let terms = RequestTerms::read(shared, routes, rare, request)?;
    let guard = routes.guard();
    guard.count(checked.client, || shared.state.clock().now())?;
    let pool_length = path.len() - split.rest.len();
    let path = sent_path.clone();
    let is_operation = rare.prefer && operation::is_wanted(request.headers());
    let operation_of = is_operation.then(|| guard.client_name(checked.client));
    let protocols = match rare.upgrade && !is_operation {
        true => upgrade::requested_protocols(request),
        false => None,
    };
    let mut headers = mem::take(request.headers_mut());
    let wait = terms.max_wait.unwrap_or(route.max_wait);
    let kind = item_kind(request.method(), &headers, rare, route.retry_unsafe, wait);
    pass_headers(shared, request.version(), &mut headers);
    let is_upgrade = protocols.is_some();
    if let Some(protocols) = protocols {
        upgrade::add_headers(&mut headers, protocols);
    }
    let parsed = ParsedRequest {
        route: Arc::clone(route),
        method: request.method().clone(),
        path,
        pool_length,
        headers: RequestHeaders::new(headers),
        kind,
        cost: terms.cost,
        operation_of,
        is_upgrade,
        trace: None,
    };
    Ok(match is_upgrade {
        true => Parsed::Upgrade(UpgradeRequest::new(parsed, serving.upgrade(request))),
        false => Parsed::Request(parsed),
    })
}

/// What a head asks of the gateway, for requests of every kind.
pub(super) struct RequestTerms {
    pub(super) max_wait: Option<Duration>,
    pub(super) cost: Option<u32>,
}

impl RequestTerms {
    /// Reads them, and refuses what has passed this gateway before or is too long.
    pub(super) fn read<B>(
        shared: &SharedGateway,
        routes: &Routes,
        rare: RareHeaders,
        request: &Request<B>,
    ) -> Result<Self, GatewayError> {
        let max_wait = match rare.max_wait || rare.prefer {
            true => max_wait(request.headers())?,
            false => None,
        };
        let cost = match rare.cost {
            true => Some(cost(request.headers())?),
            false => None,
        };
        if rare.via && shared.has_passed(request.headers()) {
            return Err(GatewayError::LoopDetected);
        }
        if let Some(most) = routes.bounds().most
            && declared_length(request.headers()).is_some_and(|length| length > most)
        {
            return Err(GatewayError::BodyTooLarge);
        }
        Ok(Self { max_wait, cost })
    }
}

/// Whether a request may be sent again, and how long it may `wait`.
pub(super) fn item_kind(
    method: &Method,
    headers: &HeaderMap,
    rare: RareHeaders,
    retry_unsafe: bool,
    wait: Duration,
) -> ItemKind {
    let key = || headers.get(&IDEMPOTENCY_KEY);
    ItemKind {
        has_idempotency_key: rare.idempotency_key && key().is_some_and(|key| !key.is_empty()),
        retry_unsafe,
        expires_after: Some(wait.max(MIN_WAIT)),
        ..ItemKind::of(method.as_str())
    }
}

/// Makes the headers of a request those that are passed on.
pub(super) fn pass_headers(shared: &SharedGateway, version: Version, headers: &mut HeaderMap) {
    headers::clean_request(headers);
    if version == Version::HTTP_2 {
        headers::join_cookies(headers);
    }
    headers.append(header::VIA, shared.via().clone());
}

/// A request that does not want to wait still has the time that asking a gate takes.
const MIN_WAIT: Duration = Duration::from_millis(10);

/// Names the pools that there are.
fn no_route(routes: &Routes) -> GatewayError {
    let names: Vec<&str> = routes.routes().map(|(name, _)| name).take(20).collect();
    GatewayError::NoRoute(match names.as_slice() {
        [] => "no pool is configured: add `[pool.NAME]` to the settings".to_owned(),
        names => format!("expected the path of a pool: /{}/…", names.join("/…, /")),
    })
}

/// How long the client is willing to wait: `Tidegate-Max-Wait: 5s`, else `Prefer: wait=5`; `None` if
/// it does not say. A preference that cannot be read is ignored; a header of ours must be right.
fn max_wait(headers: &HeaderMap) -> Result<Option<Duration>, GatewayError> {
    if let Some(value) = headers.get(&MAX_WAIT) {
        let text = value.to_str().map_err(|_| GatewayError::BadWait)?;
        let wait = duration::parse(text.trim()).map_err(|_| GatewayError::BadWait)?;
        return Ok(Some(wait.min(LONGEST_WAIT)));
    }
    let preferences = headers
        .get_all(&PREFER)
        .iter()
        .filter_map(|value| value.to_str().ok());
    let mut waits = preferences
        .flat_map(|text| text.split([',', ';']))
        .filter_map(preferred);
    Ok(waits.next().map(|wait| wait.min(LONGEST_WAIT)))
}

/// What the request costs: a whole number above zero.
fn cost(headers: &HeaderMap) -> Result<u32, GatewayError> {
    let mut values = headers.get_all(&COST).iter();
    let (value, None) = (values.next(), values.next()) else {
        return Err(GatewayError::BadCost);
    };
    let text = value.and_then(|value| value.to_str().ok());
    text.and_then(parse_cost).ok_or(GatewayError::BadCost)
}

fn preferred(preference: &str) -> Option<Duration> {
    let (name, value) = preference.split_once('=')?;
    let seconds = value.trim().trim_matches('"').parse().ok()?;
    name.trim()
        .eq_ignore_ascii_case("wait")
        .then(|| Duration::from_secs(seconds))
}

const MAX_WAIT: HeaderName = HeaderName::from_static("tidegate-max-wait");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const PREFER: HeaderName = HeaderName::from_static("prefer");

/// Longer than clients keep a connection open.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use super::*;

    fn check(fields: &[(HeaderName, &'static str)], expected: Result<Option<u64>, GatewayError>) {
        let headers = fields
            .iter()
            .map(|(name, value)| (name.clone(), value.parse().unwrap()));
        let expected = expected.map(|millis| millis.map(Duration::from_millis));
        assert_eq!(max_wait(&headers.collect()), expected, "{fields:?}");
    }

    #[test]
    fn reads_both_headers_and_prefers_ours() {
        check(&[], Ok(None));
        check(&[(MAX_WAIT, "5s")], Ok(Some(5000)));
        check(&[(MAX_WAIT, "250ms"), (PREFER, "wait=9")], Ok(Some(250)));
        check(&[(MAX_WAIT, "0s")], Ok(Some(0)));
        check(&[(MAX_WAIT, "5")], Err(GatewayError::BadWait));
        check(&[(MAX_WAIT, "soon")], Err(GatewayError::BadWait));
        check(&[(MAX_WAIT, "9999h")], Ok(Some(3_600_000)));
        check(&[(PREFER, "wait=5")], Ok(Some(5000)));
        check(&[(PREFER, "respond-async, Wait=\"7\"; x")], Ok(Some(7000)));
        check(
            &[(PREFER, "return=minimal"), (PREFER, "wait=2")],
            Ok(Some(2000)),
        );
        check(&[(PREFER, "wait=soon")], Ok(None));
        check(&[(PREFER, "wait")], Ok(None));
    }

    #[test]
    fn reads_one_whole_cost_above_zero() {
        let check = |values: &[&'static str], expected: Option<u32>| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(COST, value.parse().unwrap());
            }
            let expected = expected.ok_or(GatewayError::BadCost);
            assert_eq!(cost(&headers), expected, "{values:?}");
        };
        check(&["1"], Some(1));
        check(&[" 4294967295 "], Some(u32::MAX));
        for bad in ["", "0", "-1", "+1", "1.5", "4294967296", "many", "1,2"] {
            check(&[bad], None);
        }
        check(&["1", "2"], None);
    }
}
