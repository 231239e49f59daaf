//! A client of the admin API, with typed calls, for commands that ask a running server.
//!
//! The same calls can be made [on a data folder](Client::in_folder) that no server uses: the handlers
//! of the API then run in this process, so that both ways decide alike.

use std::error::Error;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use store::{OpenError, StoreError};
use tidegate::Clock;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;
use url::{Host, Url};

use super::api::{self, AdminState};
use super::bodies::{
    AcceptedOperation, AddEndpoint, AddOperation, BulkAction, BulkResult, ChangeProtection,
    Conflict, Endpoint, Explanation, Gate, GateList, GateSort, Health, Job, JobList, Operation,
    OperationList, Pool, PoolList, Protection, Reason, ResolveOperation, Scenario, StartJob,
    StartedJob, StateName, SwitchEndpoint, TestResult, TestRun,
};
use super::pools::encoded;
use super::token::Token;
use crate::core::Core;
use crate::gateway::RequestTrails;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::settings::Settings;
use crate::state::{State, open_store};
use crate::tls::{Certificates, Http2Mode, Identity, trusted_roots};

/// A client of a running server. Every call can fail, as [`ClientError`] says.
#[derive(Clone, Debug)]
pub struct Client {
    /// As `host:port`, or the path of a folder.
    authority: String,
    transport: Transport,
}

/// What a client knows of the server that it asks.
#[derive(Clone, Debug, Default)]
pub struct ServerTrust {
    /// Its certificate, from its settings: a server that shows it is the one that is meant. Others
    /// need a certificate that the system trusts, for the name that they are asked by.
    pub certificate: Option<Certificates>,
    /// What it is shown, if it asks its clients for a certificate.
    pub identity: Option<Identity>,
}

#[derive(Clone, Debug)]
enum Transport {
    /// To a running server, over TLS or without it. Without a token only calls about its health are
    /// answered.
    Server(Option<Token>, Option<Box<ServerTls>>),
    /// To the handlers in this process.
    InProcess(Router),
}

#[derive(Clone, Debug)]
struct ServerTls {
    trust: ServerTrust,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ServerTls {
    fn new(host: Host<&str>, trust: ServerTrust) -> Option<Box<Self>> {
        let name = match host {
            Host::Domain(name) => ServerName::try_from(name.to_owned()).ok()?,
            Host::Ipv4(address) => ServerName::from(IpAddr::from(address)),
            Host::Ipv6(address) => ServerName::from(IpAddr::from(address)),
        };
        let config = trust.transport().client_config(&trusted_roots());
        Some(Box::new(Self {
            trust,
            config: Arc::new(config),
            name,
        }))
    }
}

impl ServerTrust {
    fn transport(&self) -> crate::tls::Transport {
        crate::tls::Transport {
            // A renewed certificate of the same authority is trusted, too.
            authorities: self.certificate.clone(),
            pinned: self.certificate.clone(),
            identity: self.identity.clone(),
            http2: Http2Mode::Off,
        }
    }
}

/// What a call is made over.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// A server uses it.
    #[error("a server uses the data folder `{0}`")]
    InUse(String),
    /// It cannot be opened.
    #[error(transparent)]
    Open(OpenError),
    /// What is stored cannot be read.
    #[error("cannot read what was stored")]
    Read(#[from] StoreError),
}

impl FolderError {
    /// Why the store in `folder` cannot be opened.
    pub(super) fn of(error: OpenError, folder: String) -> Self {
        match error {
            OpenError::InUse { .. } => Self::InUse(folder),
            error => Self::Open(error),
        }
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// No server listens there.
    #[error("cannot reach the server at {url}: {error}")]
    Unreachable {
        /// Where.
        url: String,
        /// Why not.
        error: io::Error,
    },
    /// There is no TLS with it, or its certificate is not trusted.
    #[error("no TLS with the server at {url}: {error}")]
    NoTls {
        /// Where.
        url: String,
        /// Why not.
        error: io::Error,
    },
    /// Its token is another one.
    #[error("the server at {url} does not take this token")]
    WrongToken {
        /// Where.
        url: String,
    },
    /// It says no.
    #[error("{detail}")]
    Refused {
        /// With this status.
        status: StatusCode,
        /// In one word.
        reason: String,
        /// In its words.
        detail: String,
    },
    /// It is something else, or of another version.
    #[error("what responds at {url} is no admin API: {what}")]
    Strange {
        /// Where.
        url: String,
        /// What is strange about it.
        what: String,
    },
}

/// It is no address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected an address such as `http://127.0.0.1:7071`")]
pub struct NoServer;

impl Client {
    /// Asks the server that `url` names.
    ///
    /// # Errors
    ///
    /// If that is no `http://host:port` or `https://host:port`.
    pub fn new(
        url: &str,
        token: impl Into<Option<Token>>,
        trust: ServerTrust,
    ) -> Result<Self, NoServer> {
        let url = Url::parse(url).map_err(|_| NoServer)?;
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let is_open = url.username().is_empty() && url.password().is_none();
        let (true, true, "http" | "https") = (is_bare, is_open, url.scheme()) else {
            return Err(NoServer);
        };
        let host = url.host().ok_or(NoServer)?;
        let port = url.port_or_known_default().ok_or(NoServer)?;
        let authority = format!("{host}:{port}");
        let tls = match url.scheme() {
            "https" => Some(ServerTls::new(host, trust).ok_or(NoServer)?),
            _ => None,
        };
        Ok(Self {
            authority,
            transport: Transport::Server(token.into(), tls),
        })
    }

    /// Asks the server that listens at `address` of this machine, over TLS if it has a certificate.
    pub fn at(address: SocketAddr, token: impl Into<Option<Token>>, trust: ServerTrust) -> Self {
        let mut address = address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        let host = match address.ip() {
            IpAddr::V4(address) => Host::Ipv4(address),
            IpAddr::V6(address) => Host::Ipv6(address),
        };
        let tls = match trust.certificate {
            Some(_) => ServerTls::new(host, trust),
            None => None,
        };
        Self {
            authority: address.to_string(),
            transport: Transport::Server(token.into(), tls),
        }
    }

    /// Makes calls on the data folder in `settings`, which no server may be using. Nothing is sent:
    /// what is due is sent by the next server.
    ///
    /// # Errors
    ///
    /// If the folder is in use, or cannot be read.
    pub async fn in_folder(settings: Settings) -> Result<Self, FolderError> {
        let authority = settings.server.data.display().to_string();
        let store = open_store(&settings);
        let store = store.map_err(|error| FolderError::of(error, authority.clone()))?;
        let settings = Arc::new(settings);
        let core = Core::new(&settings, Log::silent(), Clock::system(), 1);
        let (state, _) = State::restore(core, settings, store)?;
        // The process that was sending them has ended.
        let now = state.clock().wall();
        state.operations().recover(now).await?;
        let trails = Arc::new(RequestTrails::new(1, 1));
        let jobs = Jobs::new(Arc::clone(&state));
        let router = api::router(Arc::new(AdminState::new(state, trails, jobs)));
        Ok(Self {
            authority,
            transport: Transport::InProcess(router),
        })
    }

    /// Does something listen there?
    ///
    /// # Errors
    ///
    /// That nothing does, if the system says so at once.
    pub async fn probe(&self) -> io::Result<()> {
        match &self.transport {
            Transport::InProcess(_) => Ok(()),
            Transport::Server(..) => TcpStream::connect(&self.authority).await.map(drop),
        }
    }

    /// Where it asks, as `host:port`, or the path of a folder.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Where it asks, as `http://host:port` or `https://host:port`.
    pub fn url(&self) -> String {
        let scheme = match &self.transport {
            Transport::Server(_, Some(_)) => "https",
            Transport::Server(_, None) | Transport::InProcess(_) => "http",
        };
        format!("{scheme}://{}", self.authority)
    }

    /// The first `limit` gates, sorted, and all of them together.
    pub async fn gates(&self, sort: GateSort, limit: u32) -> Result<GateList, ClientError> {
        let path = format!("/api/v1/gates?sort={}&limit={limit}", sort.as_str());
        self.get(&path).await
    }

    /// One gate.
    pub async fn gate(&self, key: &str) -> Result<Gate, ClientError> {
        self.get(&format!("/api/v1/gates/{}", encoded(key))).await
    }

    /// Overrides a gate; the gate afterwards.
    pub async fn override_gate(&self, key: &str, action: GateAction) -> Result<Gate, ClientError> {
        let path = format!("/api/v1/gates/{}/{}", encoded(key), action.as_str());
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// All pools.
    pub async fn pools(&self) -> Result<PoolList, ClientError> {
        self.get("/api/v1/pools").await
    }

    /// One pool.
    pub async fn pool(&self, pool: &str) -> Result<Pool, ClientError> {
        self.get(&pool_path(pool)).await
    }

    /// Adds an endpoint to a pool; the endpoint.
    pub async fn add_endpoint(
        &self,
        pool: &str,
        endpoint: &AddEndpoint,
    ) -> Result<Endpoint, ClientError> {
        let path = format!("{}/endpoints", pool_path(pool));
        self.call(Method::POST, &path, Some(endpoint)).await
    }

    /// Enables or disables an endpoint; the endpoint afterwards.
    pub async fn switch_endpoint(
        &self,
        pool: &str,
        name: &str,
        enabled: bool,
    ) -> Result<Endpoint, ClientError> {
        let body = SwitchEndpoint { enabled };
        let path = endpoint_path(pool, name);
        self.call(Method::PATCH, &path, Some(&body)).await
    }

    /// Removes an endpoint.
    pub async fn remove_endpoint(&self, pool: &str, name: &str) -> Result<(), ClientError> {
        let path = endpoint_path(pool, name);
        self.call(Method::DELETE, &path, NO_BODY).await
    }

    /// Changes the protection of a pool; all of it afterwards.
    pub async fn change_protection(
        &self,
        pool: &str,
        changes: &ChangeProtection,
    ) -> Result<Protection, ClientError> {
        let path = format!("{}/protection", pool_path(pool));
        self.call(Method::PUT, &path, Some(changes)).await
    }

    /// Resets the protection of a pool; all of it afterwards.
    pub async fn reset_protection(&self, pool: &str) -> Result<Protection, ClientError> {
        let path = format!("{}/protection/reset", pool_path(pool));
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// What the protection of a pool would do.
    pub async fn test_protection(
        &self,
        pool: &str,
        scenario: Scenario,
    ) -> Result<TestResult, ClientError> {
        let path = format!("{}/test", pool_path(pool));
        self.call(Method::POST, &path, Some(&TestRun { scenario }))
            .await
    }

    /// Hands over a request to deliver.
    pub async fn add_operation(
        &self,
        operation: &AddOperation,
    ) -> Result<AcceptedOperation, ClientError> {
        self.call(Method::POST, OPERATIONS, Some(operation)).await
    }

    /// A page of operations, newest first.
    pub async fn operations(&self, query: &OperationQuery) -> Result<OperationList, ClientError> {
        self.get(&format!("{OPERATIONS}?{}", query.encoded())).await
    }

    /// One operation, with its attempts.
    pub async fn operation(&self, id: &str) -> Result<Operation, ClientError> {
        self.get(&operation_path(id)).await
    }

    /// The documents of a conflict.
    pub async fn conflict(&self, id: &str) -> Result<Conflict, ClientError> {
        self.get(&format!("{}/conflict", operation_path(id))).await
    }

    /// Retries or cancels an operation; the operation afterwards.
    pub async fn decide_operation(
        &self,
        id: &str,
        action: OperationAction,
    ) -> Result<Operation, ClientError> {
        let path = format!("{}/{}", operation_path(id), action.as_str());
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// Resolves a conflict; the operation afterwards.
    pub async fn resolve_operation(
        &self,
        id: &str,
        resolution: &ResolveOperation,
    ) -> Result<Operation, ClientError> {
        let path = format!("{}/resolve", operation_path(id));
        self.call(Method::POST, &path, Some(resolution)).await
    }

    /// Retries or cancels operations that match a filter.
    pub async fn decide_operations(
        &self,
        action: OperationAction,
        bulk: &BulkAction,
    ) -> Result<BulkResult, ClientError> {
        let path = format!("{OPERATIONS}/{}", action.as_str());
        self.call(Method::POST, &path, Some(bulk)).await
    }

    /// Starts a job.
    pub async fn start_job(&self, job: &StartJob) -> Result<StartedJob, ClientError> {
        self.call(Method::POST, JOBS, Some(job)).await
    }

    /// A page of jobs, newest first.
    pub async fn jobs(
        &self,
        cursor: Option<&str>,
        limit: Option<u32>,
    ) -> Result<JobList, ClientError> {
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        if let Some(cursor) = cursor {
            query.append_pair("cursor", cursor);
        }
        if let Some(limit) = limit {
            query.append_pair("limit", &limit.to_string());
        }
        self.get(&format!("{JOBS}?{}", query.finish())).await
    }

    /// One job. Counts as a status request.
    pub async fn job(&self, id: &str) -> Result<Job, ClientError> {
        self.get(&job_path(id)).await
    }

    /// Cancels a job; the job afterwards.
    pub async fn cancel_job(&self, id: &str) -> Result<Job, ClientError> {
        let path = format!("{}/cancel", job_path(id));
        self.call(Method::POST, &path, NO_BODY).await
    }

    /// Where the status of a job is, the headers of a request for it, and how its server is spoken to;
    /// `None` for a data folder.
    pub fn job_status(&self, id: &str) -> Option<(Url, HeaderMap, crate::tls::Transport)> {
        let Transport::Server(Some(token), tls) = &self.transport else {
            return None;
        };
        let url = format!("{}{}", self.url(), job_path(id));
        let headers = HeaderMap::from_iter([(AUTHORIZATION, bearer(token)?)]);
        let transport = tls.as_ref().map(|tls| tls.trust.transport());
        Some((
            Url::parse(&url).ok()?,
            headers,
            transport.unwrap_or_default(),
        ))
    }

    /// Whether it is alive, or, with `ready`, whether it may be sent requests; and why not. Needs no
    /// token.
    pub async fn health(&self, ready: bool) -> Result<(bool, Health), ClientError> {
        let path = if ready { "/readyz" } else { "/healthz" };
        let (status, bytes) = self.exchange_in_time(Method::GET, path, None).await?;
        let health = serde_json::from_slice(&bytes);
        let health = health.map_err(|_| self.strange(&format!("it answers {status}")))?;
        // The status decides, as it does for a load balancer: a server that is degraded may be ready.
        Ok((status.is_success(), health))
    }

    /// Every decision about a request.
    pub async fn explain(&self, request_id: &str) -> Result<Explanation, ClientError> {
        let path = format!("/api/v1/explain/{}", encoded(request_id));
        self.get(&path).await
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, NO_BODY).await
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T, ClientError> {
        let body = body.map(serde_json::to_string).transpose();
        let body = body.map_err(|error| self.strange(&error.to_string()))?;
        let (status, bytes) = self.exchange_in_time(method, path, body).await?;
        if !status.is_success() {
            return Err(self.refused(status, &bytes));
        }
        let text = match status {
            StatusCode::NO_CONTENT => &b"null"[..],
            _ => &bytes,
        };
        serde_json::from_slice(text).map_err(|error| {
            self.strange(&format!("its response is not what was expected: {error}"))
        })
    }

    async fn exchange_in_time(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let response = tokio::time::timeout(TIMEOUT, self.exchange(method, path, body));
        response.await.unwrap_or_else(|_| {
            let error = io::Error::new(io::ErrorKind::TimedOut, "no response in time");
            Err(self.unreachable(error))
        })
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let (token, tls) = match &self.transport {
            Transport::Server(token, tls) => (token, tls),
            Transport::InProcess(router) => {
                return self.call_router(router.clone(), method, path, body).await;
            }
        };
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|error| self.unreachable(error))?;
        let stream: Box<dyn Stream> = match tls {
            None => Box::new(stream),
            Some(tls) => {
                let connector = TlsConnector::from(Arc::clone(&tls.config));
                let stream = connector.connect(tls.name.clone(), stream).await;
                Box::new(stream.map_err(|error| self.no_tls(error))?)
            }
        };
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.broken(&error))?;
        let task = tokio::spawn(connection);
        let request = self.request(token.as_ref(), method, path, body)?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MAX_RESPONSE)
            .collect()
            .await;
        task.abort();
        let body = body.map_err(|error| self.strange(&error.to_string()))?;
        Ok((status, body.to_bytes()))
    }

    async fn call_router(
        &self,
        mut router: Router,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(CONTENT_TYPE, "application/json")
            .body(Body::from(body.unwrap_or_default()))
            .map_err(|error| self.strange(&error.to_string()))?;
        let response = match router.call(request).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        let status = response.status();
        let body = response.into_body().collect().await;
        let body = body.map_err(|error| self.strange(&error.to_string()))?;
        Ok((status, body.to_bytes()))
    }

    fn request(
        &self,
        token: Option<&Token>,
        method: Method,
        path: &str,
        body: Option<String>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority);
        if let Some(token) = token {
            let token = bearer(token).ok_or_else(|| self.strange("no such token"))?;
            request = request.header(AUTHORIZATION, token);
        }
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::from(body.unwrap_or_default()))
            .map_err(|error| self.strange(&error.to_string()))
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        if status == StatusCode::UNAUTHORIZED {
            return ClientError::WrongToken { url: self.url() };
        }
        match serde_json::from_slice(body) {
            Ok(ProblemSummary { reason, detail }) => ClientError::Refused {
                status,
                reason,
                detail,
            },
            Err(_) => self.strange(&format!("it answers {status}")),
        }
    }

    fn unreachable(&self, error: io::Error) -> ClientError {
        let url = self.url();
        ClientError::Unreachable { url, error }
    }

    fn no_tls(&self, error: io::Error) -> ClientError {
        let url = self.url();
        ClientError::NoTls { url, error }
    }

    /// A server may refuse our certificate only after the handshake.
    fn broken(&self, error: &hyper::Error) -> ClientError {
        let mut cause = error.source();
        while let Some(error) = cause {
            let inner = error.downcast_ref().and_then(io::Error::get_ref);
            if let Some(tls) = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
                return self.no_tls(io::Error::other(tls.clone()));
            }
            cause = error.source();
        }
        self.strange(&error.to_string())
    }

    fn strange(&self, what: &str) -> ClientError {
        ClientError::Strange {
            url: self.url(),
            what: what.to_owned(),
        }
    }
}

/// What a person does to a gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateAction {
    /// Rate, hold, breaker and counts start again.
    Reset,
    /// Everything is refused until it is released or reset.
    Isolate,
    /// Hold, open breaker and isolation end.
    Release,
}

impl GateAction {
    /// Its name in the path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reset => "reset",
            Self::Isolate => "isolate",
            Self::Release => "release",
        }
    }
}

/// Which operations to list. `None` is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OperationQuery {
    /// In this state.
    pub state: Option<StateName>,
    /// Of this type.
    pub kind: Option<String>,
    /// Ended for this reason.
    pub reason: Option<Reason>,
    /// For this destination.
    pub key: Option<String>,
    /// With an id that begins with this.
    pub id: Option<String>,
    /// From here on.
    pub cursor: Option<String>,
    /// At most so many.
    pub limit: Option<u32>,
}

impl OperationQuery {
    fn encoded(&self) -> String {
        let limit = self.limit.map(|limit| limit.to_string());
        let parameters = [
            ("state", self.state.map(StateName::as_str)),
            ("type", self.kind.as_deref()),
            ("reason", self.reason.map(Reason::as_str)),
            ("key", self.key.as_deref()),
            ("id", self.id.as_deref()),
            ("cursor", self.cursor.as_deref()),
            ("limit", limit.as_deref()),
        ];
        let mut query = url::form_urlencoded::Serializer::new(String::new());
        for (name, value) in parameters {
            if let Some(value) = value {
                query.append_pair(name, value);
            }
        }
        query.finish()
    }
}

/// What a person does to operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperationAction {
    /// They are sent again.
    Retry,
    /// They are not sent any more.
    Cancel,
}

impl OperationAction {
    /// Its name in the path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Cancel => "cancel",
        }
    }
}

/// What a command shows of a problem.
#[derive(Deserialize)]
struct ProblemSummary {
    reason: String,
    detail: String,
}

const NO_BODY: Option<&()> = None;

fn bearer(token: &Token) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

const JOBS: &str = "/api/v1/jobs";

fn job_path(id: &str) -> String {
    format!("{JOBS}/{}", encoded(id))
}

const OPERATIONS: &str = "/api/v1/operations";

fn operation_path(id: &str) -> String {
    format!("{OPERATIONS}/{}", encoded(id))
}

fn pool_path(pool: &str) -> String {
    format!("/api/v1/pools/{}", encoded(pool))
}

fn endpoint_path(pool: &str, name: &str) -> String {
    format!("{}/endpoints/{}", pool_path(pool), encoded(name))
}

/// More than a thousand gates take.
const MAX_RESPONSE: usize = 16 << 20;

/// Of one call.
const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_the_address_of_a_server() {
        let token = || Token::new("0123456789abcdef").unwrap();
        let authority = |url: &str| {
            let client = Client::new(url, token(), ServerTrust::default());
            client.map(|client| client.authority)
        };
        assert_eq!(
            authority("http://127.0.0.1:7071"),
            Ok("127.0.0.1:7071".into())
        );
        assert_eq!(authority("http://[::1]:7071/"), Ok("[::1]:7071".into()));
        assert_eq!(authority("http://gate"), Ok("gate:80".into()));
        assert_eq!(authority("https://gate"), Ok("gate:443".into()));
        for wrong in [
            "",
            "127.0.0.1:7071",
            "ftp://a",
            "http://a/b",
            "http://u@a",
            "http://a?b",
        ] {
            assert_eq!(authority(wrong), Err(NoServer), "{wrong}");
        }
        let any = Client::at(
            "0.0.0.0:7071".parse().unwrap(),
            token(),
            ServerTrust::default(),
        );
        assert_eq!(any.authority(), "127.0.0.1:7071");
    }
}
