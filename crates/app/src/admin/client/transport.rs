//! How a call gets to the server, over TLS or without it, or to the handlers in this process.

use std::error::Error;
use std::io;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tower_service::Service;
use url::Host;

use super::{Client, ClientError};
use crate::admin::token::Token;
use crate::tls::{Certificates, Http2Mode, Identity, trusted_roots};

/// What a client knows of the server that it asks.
#[derive(Clone, Debug, Default)]
pub struct ServerTrust {
    /// Its certificate, from its settings: a server that shows it is the one that is meant. Others
    /// need a certificate that the system trusts, for the name that they are asked by.
    pub certificate: Option<Certificates>,
    /// What it is shown, if it asks its clients for a certificate.
    pub identity: Option<Identity>,
}

impl ServerTrust {
    pub(super) fn transport(&self) -> crate::tls::Transport {
        crate::tls::Transport {
            // A renewed certificate of the same authority is trusted, too.
            authorities: self.certificate.clone(),
            pinned: self.certificate.clone(),
            identity: self.identity.clone(),
            http2: Http2Mode::Off,
        }
    }
}

/// How calls are made.
#[derive(Clone, Debug)]
pub(super) enum Transport {
    /// To a running server, over TLS or without it. Without a token only calls about its health are
    /// answered.
    Server(Option<Token>, Option<Box<ServerTls>>),
    /// To the handlers in this process.
    InProcess(Router),
}

/// How a server is spoken to over TLS.
#[derive(Clone, Debug)]
pub(super) struct ServerTls {
    pub(super) trust: ServerTrust,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
}

impl ServerTls {
    pub(super) fn new(host: Host<&str>, trust: ServerTrust) -> Option<Box<Self>> {
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

/// What a call is made over.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send> Stream for T {}

impl Client {
    pub(super) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, ClientError> {
        self.call(Method::GET, path, None::<&()>).await
    }

    pub(super) async fn call<T: DeserializeOwned>(
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

    pub(super) async fn exchange_in_time(
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

    pub(super) fn strange(&self, what: &str) -> ClientError {
        ClientError::Strange {
            url: self.url(),
            what: what.to_owned(),
        }
    }
}

/// What a command shows of a problem.
#[derive(Deserialize)]
struct ProblemSummary {
    reason: String,
    detail: String,
}

pub(super) fn bearer(token: &Token) -> Option<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", token.expose())).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// More than a thousand gates take.
const MAX_RESPONSE: usize = 16 << 20;

/// Of one call.
const TIMEOUT: Duration = Duration::from_secs(10);
