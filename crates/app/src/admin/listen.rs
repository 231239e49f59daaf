//! The listener of the admin API: its thread, its connections and its end.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::runtime::{self, Handle};
use tokio::sync::{Semaphore, watch};
use tokio::time::MissedTickBehavior;
use tower_service::Service;

use super::api::{self, AdminState};
use super::console::{self, SAFE_HEADERS};
use super::demo::TourGuide;
use super::guard::{Access, Guard};
use super::key_path;
use super::problem::{Kind, PROBLEM, Refused};
use super::sign_in::Cookies;
use super::token::{Token, TokenError};
use crate::descriptors;
use crate::gateway::RequestTrails;
use crate::host_check::AcceptedHosts;
use crate::jobs::{Jobs, StatusClient};
use crate::listener;
use crate::replaceable::{ReplaceableConnection, ReplaceableConnections};
use crate::state::State;
use crate::tls::{self, Handshakes, NOT_TLS, NoTls};

/// An admin API that serves.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    is_tls: bool,
    token: Token,
    admin: Arc<AdminState>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    event_loop: Handle,
}

/// Why it cannot serve.
#[derive(Debug, thiserror::Error)]
pub enum AdminError {
    /// There is no token.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which one.
        address: SocketAddr,
        /// Why not.
        #[source]
        error: io::Error,
    },
    /// The system gives no thread.
    #[error("cannot start the admin API")]
    Thread(#[source] io::Error),
}

impl Admin {
    /// Listens, and serves from then on.
    ///
    /// # Errors
    ///
    /// If there is no token, the address is taken, or there is no thread to be had.
    pub fn start(
        state: Arc<State>,
        trails: Arc<RequestTrails>,
        jobs: Arc<Jobs>,
    ) -> Result<Self, AdminError> {
        let configuration = state.configuration();
        let server = &configuration.settings().server;
        let token = Token::open(&server.data)?;
        let address = server.admin;
        let listen = |error| AdminError::Listen { address, error };
        let listener = listener::bind(address).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let is_tls = configuration.settings().listeners.admin.is_some();
        let cookies = Cookies::new(token.clone(), address.port(), state.clock().clone());
        let cookies = cookies.secure(is_tls);
        let admin = Arc::new(AdminState::new(state, trails, jobs));
        let shared = Arc::new(Listener {
            token: token.clone(),
            cookies: Arc::new(cookies),
            address,
            admin: Arc::clone(&admin),
            router: api::router(Arc::clone(&admin)),
            handshakes: Handshakes::new(MAX_CONNECTIONS),
        });
        let (stop, stopping) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AdminError::Thread)?;
        let event_loop = runtime.handle().clone();
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || runtime.block_on(accept(listener, shared, stopping)))
            .map_err(AdminError::Thread)?;
        Ok(Self {
            address,
            is_tls,
            token,
            admin,
            stop,
            thread,
            event_loop,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The event loop of its thread.
    pub(crate) fn event_loop(&self) -> &Handle {
        &self.event_loop
    }

    /// Makes this server a demo, with a guided tour. Only the first call has an effect.
    pub fn set_tour_guide(&self, guide: Arc<dyn TourGuide>) {
        _ = self.admin.tour_guide.set(guide);
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        listener::url(self.address, self.is_tls)
    }

    /// The address of the console.
    pub fn console_address(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address.ip() {
                IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
                IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("{}/", listener::url(address, self.is_tls))
    }

    /// The address of the console that signs a browser in. It contains the token, so it is for a person
    /// at a terminal and never for a log.
    pub fn sign_in_address(&self) -> String {
        let token = self.token.expose().as_bytes();
        let token: String = url::form_urlencoded::byte_serialize(token).collect();
        format!("{}?token={token}", self.console_address())
    }

    /// Says from now on that no more requests should be sent here.
    pub fn drain(&self) {
        self.admin.start_draining();
    }

    /// Ends it. Calls in flight are finished; event streams are closed.
    pub fn stop(self) {
        self.stop.send_replace(true);
        // A panic was printed when it happened.
        _ = self.thread.join();
    }
}

/// What all connections share.
#[derive(Debug)]
struct Listener {
    token: Token,
    cookies: Arc<Cookies>,
    address: SocketAddr,
    admin: Arc<AdminState>,
    router: Router,
    /// Each connection may have one.
    handshakes: Handshakes,
}

/// Connections at a time, if there are descriptors for so many; for more, those that have shown no
/// credential are closed, the oldest first. A browser opens up to six.
const MAX_CONNECTIONS: usize = 1024;

/// Before accepting again after the system refused.
const PAUSE: Duration = Duration::from_millis(10);

/// For a head to arrive, and for calls in flight at the end.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn accept(listener: TcpListener, shared: Arc<Listener>, mut stop: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let most = MAX_CONNECTIONS.min(shared.admin.state.core().descriptors().admin());
    let slots = Arc::new(Semaphore::new(most));
    let unauthenticated = Arc::new(ReplaceableConnections::default());
    let stopping = stop.clone();
    tokio::spawn(record(Arc::clone(&shared.admin)));
    let work = async {
        loop {
            let (stream, peer) = match listener.accept().await {
                Ok(accepted) => accepted,
                Err(error) => {
                    // Otherwise the client has disconnected.
                    if descriptors::are_used_up(&error) {
                        unauthenticated.close_oldest();
                    }
                    tokio::time::sleep(PAUSE).await;
                    continue;
                }
            };
            if slots.available_permits() == 0 {
                unauthenticated.close_oldest();
            }
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            let (shared, stopping) = (Arc::clone(&shared), stopping.clone());
            let connection = ReplaceableConnections::add(&unauthenticated);
            tokio::spawn(async move {
                tokio::select! {
                    () = shared.accept(stream, peer.ip(), &connection, stopping) => {}
                    () = connection.closed() => {}
                }
                drop(slot);
            });
        }
    };
    tokio::select! {
        () = work => {}
        () = is_stopped(&mut stop) => {}
    }
    let all = u32::try_from(most).unwrap_or(u32::MAX);
    let finished = async {
        _ = slots.acquire_many(all).await;
        // A client may have left while its change was being stored.
        shared.admin.state.finish_changes().await;
    };
    // What takes longer than that ends with the process.
    _ = tokio::time::timeout(TIMEOUT, finished).await;
}

/// Records a second each second, as long as the runtime lives.
async fn record(admin: Arc<AdminState>) {
    let events = admin.state.core().events();
    let listener = admin.recorder.listener();
    events.add(listener);
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Skip);
    loop {
        ticks.tick().await;
        admin.recorder.tick();
    }
}

async fn is_stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender everything ends as well.
    _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

impl Listener {
    /// Serves a connection, over TLS if that is configured.
    async fn accept(
        self: Arc<Self>,
        stream: TcpStream,
        peer: IpAddr,
        connection: &ReplaceableConnection,
        stop: watch::Receiver<bool>,
    ) {
        _ = stream.set_nodelay(true);
        let configuration = self.admin.state.configuration();
        let tls = configuration.settings().listeners.admin.as_ref();
        let tls = tls.map(|tls| Arc::clone(tls.config()));
        drop(configuration);
        let Some(tls) = tls else {
            return self.serve(stream, peer, connection, stop).await;
        };
        match tls::accept(tls, &self.handshakes, stream, |stream| stream).await {
            Ok(stream) => self.serve(stream, peer, connection, stop).await,
            Err(NoTls::PlainText(stream)) => {
                tls::answer_in_plain_text(stream, &not_tls()).await;
            }
            Err(NoTls::Failed(error)) => self.admin.state.log().tls_failed(&error),
        }
    }

    async fn serve<T>(
        self: Arc<Self>,
        stream: T,
        peer: IpAddr,
        connection: &ReplaceableConnection,
        mut stop: watch::Receiver<bool>,
    ) where
        T: AsyncRead + AsyncWrite + Unpin,
    {
        let service = service_fn(|request| {
            let shared = Arc::clone(&self);
            async move { Ok::<_, Infallible>(shared.answer(request, peer, connection).await) }
        });
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(TIMEOUT)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        // How a connection ends concerns its client only.
        tokio::select! {
            _ = connection.as_mut() => return,
            () = is_stopped(&mut stop) => {}
        }
        connection.as_mut().graceful_shutdown();
        self.admin.close_streams();
        _ = connection.await;
    }

    async fn answer(
        &self,
        mut request: Request<Incoming>,
        peer: IpAddr,
        connection: &ReplaceableConnection,
    ) -> Response {
        let checked = self.guard().check(&request);
        let mut answer = match (checked, self.exchange_token(&request)) {
            (Err(refused), _) => refused.into_response(),
            (Ok(_), Some(redirect)) => redirect,
            (Ok(access), None) => {
                if access != Access::Free {
                    connection.leave();
                }
                key_path::join(&mut request);
                let extensions = request.extensions_mut();
                extensions.insert(Arc::clone(&self.cookies));
                extensions.insert(StatusClient {
                    peer: Some(peer),
                    credential: access.credential(),
                });
                self.route(request).await
            }
        };
        let headers = answer.headers_mut();
        headers.extend(SAFE_HEADERS);
        let now = self.admin.state.clock().wall().as_unix_millis();
        headers.insert(NOW, HeaderValue::from(now));
        // Files of the console may be stored, and reports and the console have their own policy.
        let no_store = HeaderValue::from_static("no-store");
        headers.entry(CACHE_CONTROL).or_insert(no_store);
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
        answer
    }

    /// Signs a browser in whose address of a page carries the token.
    fn exchange_token(&self, request: &Request<Incoming>) -> Option<Response> {
        let is_page = request.method() == Method::GET && console::is_page(request.uri().path());
        is_page.then(|| self.cookies.exchange(request.uri()))?
    }

    /// By the settings of now, for a reload may have changed our names.
    fn guard(&self) -> Guard<'_> {
        let configuration = self.admin.state.configuration();
        Guard {
            names: AcceptedHosts::new(configuration.settings(), self.address),
            token: &self.token,
            cookies: &self.cookies,
        }
    }

    async fn route(&self, request: Request<Incoming>) -> Response {
        let mut router = self.router.clone();
        let answer = match router.call(request.map(Body::new)).await {
            Ok(answer) => answer,
            Err(never) => match never {},
        };
        let is_ours = answer.headers().get(CONTENT_TYPE) == Some(&PROBLEM);
        if answer.status().is_client_error() && !is_ours {
            let refused = Refused::instead_of(answer.status(), answer.headers());
            let allowed = answer.headers().get(http::header::ALLOW).cloned();
            let mut instead = refused.into_response();
            if let Some(allowed) = allowed {
                instead.headers_mut().insert(http::header::ALLOW, allowed);
            }
            return instead;
        }
        answer
    }
}

/// The response to a client that speaks plain HTTP where TLS is spoken.
fn not_tls() -> Vec<u8> {
    let kind = Kind::BadRequest;
    let problem = json!({
        "type": format!("urn:tidegate:problem:{}", kind.reason()),
        "title": kind.title(),
        "status": kind.status().as_u16(),
        "detail": NOT_TLS,
        "reason": kind.reason(),
    });
    let body = problem.to_string();
    let head = format!(
        "HTTP/1.1 {}\r\ncontent-type: application/problem+json\r\nconnection: close\r\n\
         content-length: {}\r\n\r\n",
        kind.status(),
        body.len()
    );
    [head, body].concat().into_bytes()
}

/// When a response was made, in milliseconds of Unix time: countdowns of the console run on it.
const NOW: HeaderName = HeaderName::from_static("tidegate-now");

const POLICY: HeaderValue = HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'");
