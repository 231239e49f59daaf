//! The other side of the admin API, for commands that ask a running server.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http::{HeaderValue, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::net::TcpStream;
use url::Url;

use super::token::Token;

/// Asks a running server.
#[derive(Clone, Debug)]
pub struct Client {
    /// As `host:port`.
    authority: String,
    token: Token,
}

/// Why there is no good answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nobody listens there.
    #[error("cannot reach the server at http://{authority}: {error}")]
    Unreachable {
        /// Where.
        authority: String,
        /// Why not.
        error: io::Error,
    },
    /// Its token is another one.
    #[error("the server at http://{authority} does not take this token")]
    WrongToken {
        /// Where.
        authority: String,
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
    #[error("what answers at http://{authority} is no admin API: {what}")]
    Strange {
        /// Where.
        authority: String,
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
    /// If that is no `http://host:port`.
    pub fn new(url: &str, token: Token) -> Result<Self, NoServer> {
        let url = Url::parse(url).map_err(|_| NoServer)?;
        let is_bare = url.path() == "/" && url.query().is_none() && url.fragment().is_none();
        let is_open = url.username().is_empty() && url.password().is_none();
        let (true, true, "http") = (is_bare, is_open, url.scheme()) else {
            return Err(NoServer);
        };
        let host = url.host_str().ok_or(NoServer)?;
        let port = url.port_or_known_default().ok_or(NoServer)?;
        Ok(Self {
            authority: format!("{host}:{port}"),
            token,
        })
    }

    /// Asks the server that listens at `address` of this machine.
    pub fn at(address: SocketAddr, token: Token) -> Self {
        let mut address = address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        Self {
            authority: address.to_string(),
            token,
        }
    }

    /// Where it asks.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// Asks with `GET`.
    ///
    /// # Errors
    ///
    /// Why there is no good answer.
    pub async fn get(&self, path: &str) -> Result<Value, ClientError> {
        self.call(Method::GET, path, None).await
    }

    /// Asks with `POST` and a body.
    ///
    /// # Errors
    ///
    /// Why there is no good answer.
    pub async fn post(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call(Method::POST, path, Some(body)).await
    }

    /// Asks with `PATCH` and a body.
    ///
    /// # Errors
    ///
    /// Why there is no good answer.
    pub async fn patch(&self, path: &str, body: &Value) -> Result<Value, ClientError> {
        self.call(Method::PATCH, path, Some(body)).await
    }

    /// Asks with `DELETE`.
    ///
    /// # Errors
    ///
    /// Why there is no good answer.
    pub async fn delete(&self, path: &str) -> Result<Value, ClientError> {
        self.call(Method::DELETE, path, None).await
    }

    /// Asks with any method and a body, if there is one. Nothing but a status is `null`.
    ///
    /// # Errors
    ///
    /// Why there is no good answer.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, ClientError> {
        let answer = tokio::time::timeout(PATIENCE, self.exchange(method, path, body));
        let (status, bytes) = answer.await.unwrap_or_else(|_| {
            Err(self.unreachable(io::Error::new(io::ErrorKind::TimedOut, "no answer in time")))
        })?;
        if status == StatusCode::NO_CONTENT {
            return Ok(Value::Null);
        }
        let value = serde_json::from_slice(&bytes);
        let value: Value = value.map_err(|_| self.strange("its answer is not JSON"))?;
        if status.is_success() {
            return Ok(value);
        }
        Err(self.refused(status, &value))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<(StatusCode, Bytes), ClientError> {
        let stream = TcpStream::connect(&self.authority).await;
        let stream = stream.map_err(|error| self.unreachable(error))?;
        let shaken = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = shaken.map_err(|error| self.broken(&error))?;
        let task = tokio::spawn(connection);
        let request = self.request(method, path, body)?;
        let answer = sender.send_request(request).await;
        let answer = answer.map_err(|error| self.broken(&error))?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), MOST_BYTES).collect().await;
        task.abort();
        let body = body.map_err(|error| self.strange(&error.to_string()))?;
        Ok((status, body.to_bytes()))
    }

    fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        let token = format!("Bearer {}", self.token.expose());
        let mut token = HeaderValue::from_str(&token).map_err(|_| self.strange("no such token"))?;
        token.set_sensitive(true);
        let text = body.map(ToString::to_string).unwrap_or_default();
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, &self.authority)
            .header(AUTHORIZATION, token);
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        request
            .body(Full::from(text))
            .map_err(|error| self.strange(&error.to_string()))
    }

    fn refused(&self, status: StatusCode, problem: &Value) -> ClientError {
        let word = |name: &str| problem[name].as_str().unwrap_or_default().to_owned();
        let (reason, detail) = (word("reason"), word("detail"));
        if status == StatusCode::UNAUTHORIZED {
            return ClientError::WrongToken {
                authority: self.authority.clone(),
            };
        }
        if reason.is_empty() {
            return self.strange(&format!("it answers {status}"));
        }
        ClientError::Refused {
            status,
            reason,
            detail,
        }
    }

    fn unreachable(&self, error: io::Error) -> ClientError {
        ClientError::Unreachable {
            authority: self.authority.clone(),
            error,
        }
    }

    fn broken(&self, error: &hyper::Error) -> ClientError {
        self.strange(&error.to_string())
    }

    fn strange(&self, what: &str) -> ClientError {
        ClientError::Strange {
            authority: self.authority.clone(),
            what: what.to_owned(),
        }
    }
}

/// A name as a part of a path.
pub fn encoded(name: &str) -> String {
    super::pools::encoded(name)
}

/// More than a thousand gates take.
const MOST_BYTES: usize = 16 << 20;

/// For one answer.
const PATIENCE: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_named_by_host_and_port() {
        let token = || Token::new("0123456789abcdef").unwrap();
        let authority = |url: &str| Client::new(url, token()).map(|client| client.authority);
        assert_eq!(
            authority("http://127.0.0.1:7071"),
            Ok("127.0.0.1:7071".into())
        );
        assert_eq!(authority("http://[::1]:7071/"), Ok("[::1]:7071".into()));
        assert_eq!(authority("http://gate"), Ok("gate:80".into()));
        for wrong in [
            "",
            "127.0.0.1:7071",
            "https://a",
            "http://a/b",
            "http://u@a",
            "http://a?b",
        ] {
            assert_eq!(authority(wrong), Err(NoServer), "{wrong}");
        }
        let any = Client::at("0.0.0.0:7071".parse().unwrap(), token());
        assert_eq!(any.authority(), "127.0.0.1:7071");
    }
}
