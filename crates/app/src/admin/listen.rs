//! The listener of the admin API: its thread, its connections and its end.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::response::{IntoResponse, Response};
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderValue, Request};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::runtime;
use tokio::sync::{Semaphore, watch};
use tower_service::Service;

use super::api::{self, AdminState};
use super::demo::TourGuide;
use super::guard::Guard;
use super::key_path;
use super::problem::{PROBLEM, Refused};
use super::token::{Token, TokenError};
use crate::gateway::RequestTrails;
use crate::host_check::AcceptedHosts;
use crate::jobs::{Jobs, StatusClient};
use crate::state::State;

/// An admin API that serves.
#[derive(Debug)]
pub struct Admin {
    address: SocketAddr,
    admin: Arc<AdminState>,
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
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
        let listener = TcpListener::bind(address).map_err(listen)?;
        listener.set_nonblocking(true).map_err(listen)?;
        let address = listener.local_addr().map_err(listen)?;
        let admin = Arc::new(AdminState::new(state, trails, jobs));
        let shared = Arc::new(Listener {
            token,
            address,
            admin: Arc::clone(&admin),
            router: api::router(Arc::clone(&admin)),
        });
        let (stop, stopping) = watch::channel(false);
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(AdminError::Thread)?;
        let thread = std::thread::Builder::new()
            .name("admin".to_owned())
            .spawn(move || runtime.block_on(accept(listener, shared, stopping)))
            .map_err(AdminError::Thread)?;
        Ok(Self {
            address,
            admin,
            stop,
            thread,
        })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes this server a demo, with a guided tour. Only the first call has an effect.
    pub fn set_tour_guide(&self, guide: Arc<dyn TourGuide>) {
        _ = self.admin.tour_guide.set(guide);
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
    address: SocketAddr,
    admin: Arc<AdminState>,
    router: Router,
}

/// Connections at a time; more wait.
const MAX_CONNECTIONS: usize = 256;

/// Before accepting again after the system refused.
const PAUSE: Duration = Duration::from_millis(10);

/// For a head to arrive, and for calls in flight at the end.
const TIMEOUT: Duration = Duration::from_secs(10);

async fn accept(listener: TcpListener, shared: Arc<Listener>, mut stop: watch::Receiver<bool>) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let stopping = stop.clone();
    let work = async {
        loop {
            let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
                return;
            };
            match listener.accept().await {
                Ok((stream, peer)) => {
                    let (shared, stopping) = (Arc::clone(&shared), stopping.clone());
                    tokio::spawn(async move {
                        shared.serve(stream, peer.ip(), stopping).await;
                        drop(slot);
                    });
                }
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    };
    tokio::select! {
        () = work => {}
        () = is_stopped(&mut stop) => {}
    }
    let all = u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX);
    let finished = async {
        _ = slots.acquire_many(all).await;
        // A client may have left while its change was being stored.
        shared.admin.state.finish_changes().await;
    };
    // What takes longer than that ends with the process.
    _ = tokio::time::timeout(TIMEOUT, finished).await;
}

async fn is_stopped(stop: &mut watch::Receiver<bool>) {
    // Without a sender everything ends as well.
    _ = stop.wait_for(|is_stopped| *is_stopped).await;
}

impl Listener {
    async fn serve(
        self: Arc<Self>,
        stream: TcpStream,
        peer: IpAddr,
        mut stop: watch::Receiver<bool>,
    ) {
        _ = stream.set_nodelay(true);
        let service = service_fn(|request| {
            let shared = Arc::clone(&self);
            async move { Ok::<_, Infallible>(shared.answer(request, peer).await) }
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

    async fn answer(&self, mut request: Request<Incoming>, peer: IpAddr) -> Response {
        let mut answer = match self.guard().check(&request) {
            Err(refused) => refused.into_response(),
            Ok(access) => {
                key_path::join(&mut request);
                request.extensions_mut().insert(StatusClient {
                    peer: Some(peer),
                    credential: access.credential(),
                });
                self.route(request).await
            }
        };
        let headers = answer.headers_mut();
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        // A report has its own.
        headers.entry(CONTENT_SECURITY_POLICY).or_insert(POLICY);
        answer
    }

    /// By the settings of now, for a reload may have changed our names.
    fn guard(&self) -> Guard {
        let configuration = self.admin.state.configuration();
        Guard {
            names: AcceptedHosts::new(configuration.settings(), self.address),
            token: self.token.clone(),
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

const POLICY: HeaderValue = HeaderValue::from_static("default-src 'self'; frame-ancestors 'none'");
