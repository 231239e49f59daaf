//! A client of the admin API, with typed calls, for commands that ask a running server.
//!
//! The same calls can be made [on a data folder](Client::in_folder) that no server uses: the handlers
//! of the API then run in this process, so that both ways decide alike.

mod calls;
mod error;
mod transport;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use tidegate::Clock;
use tokio::net::TcpStream;
use url::{Host, Url};

use super::api::{self, AdminState};
use super::token::Token;
use crate::core::Core;
use crate::gateway::RequestTrails;
use crate::jobs::Jobs;
use crate::log::Log;
use crate::settings::Settings;
use crate::state::{State, open_store};

pub use calls::{GateAction, OperationAction, OperationQuery};
pub use error::{ClientError, FolderError, NoServer};
pub use transport::ServerTrust;

use transport::{ServerTls, Transport};

/// A client of a running server. Every call can fail, as [`ClientError`] says.
#[derive(Clone, Debug)]
pub struct Client {
    /// As `host:port`, or the path of a folder.
    authority: String,
    transport: Transport,
}

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
}

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
