//! Every call there is, and the document that describes them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use axum::Router;
use tidegate::Clock;
use tokio::sync::{Semaphore, watch};
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{
    ContentBuilder, OpenApi as Document, Ref, RefOr, Response, ResponseBuilder, SecurityRequirement,
};
use utoipa::{Modify, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::bodies::{Problem, Version};
use super::demo::TourGuide;
use super::problem::{Kind, Refused};
use super::recorder::Recorder;
use super::samples::Samples;
use super::{
    console, demo, events, explain, gates, health, jobs, operations, pools, protection, settings,
    sign_in, simulate, summary, test_tool,
};
use crate::gateway::RequestTrails;
use crate::jobs::Jobs;
use crate::state::State;

/// What every handler uses.
pub(super) struct AdminState {
    pub(super) state: Arc<State>,
    pub(super) trails: Arc<RequestTrails>,
    pub(super) jobs: Arc<Jobs>,
    /// Simulations that may still be started.
    pub(super) simulations: Arc<Semaphore>,
    /// Set once, by the demo; no other server has one.
    pub(super) tour_guide: OnceLock<Arc<dyn TourGuide>>,
    pub(super) process: Process,
    pub(super) recorder: Recorder,
    pub(super) samples: Samples,
    is_draining: AtomicBool,
    closing: watch::Sender<bool>,
}

impl AdminState {
    pub(super) fn new(state: Arc<State>, trails: Arc<RequestTrails>, jobs: Arc<Jobs>) -> Self {
        let process = Process::new(&trails, state.clock());
        let recorder = Recorder::new(state.limiter().clone());
        Self {
            process,
            recorder,
            samples: Samples::default(),
            state,
            trails,
            jobs,
            simulations: Arc::new(Semaphore::new(simulate::MAX_RUNNING)),
            tour_guide: OnceLock::new(),
            is_draining: AtomicBool::new(false),
            closing: watch::Sender::new(false),
        }
    }

    pub(super) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(super) fn start_draining(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(super) fn version(&self) -> Version {
        Version {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: self.process.boot_id.clone(),
            started_ms: self.process.started_ms,
            demo: self.tour_guide.get().is_some(),
        }
    }

    /// Ends every stream of events.
    pub(super) fn close_streams(&self) {
        self.closing.send_replace(true);
    }

    /// Waits until streams of events have to end.
    pub(super) fn closing(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut closing = self.closing.subscribe();
        async move {
            // Without a sender the server is gone, too.
            _ = closing.wait_for(|is_closing| *is_closing).await;
        }
    }
}

impl fmt::Debug for AdminState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AdminState").finish_non_exhaustive()
    }
}

/// This process, as clients tell it from others.
#[derive(Clone, Debug)]
pub(super) struct Process {
    /// Random, so that another one means a restart.
    pub(super) boot_id: String,
    pub(super) started_ms: i64,
}

impl Process {
    fn new(trails: &RequestTrails, clock: &Clock) -> Self {
        Self {
            boot_id: format!("{:08x}", trails.process()),
            started_ms: clock.wall().as_unix_millis(),
        }
    }
}

/// Everything that is answered.
pub(super) fn router(admin: Arc<AdminState>) -> Router {
    let (mut router, document) = described();
    let text = text(&document);
    let openapi = axum::routing::get(move || async move { health::json(text) });
    // The one of sign-in is in the document, because the call to sign in has its path.
    for page in console::PAGES.into_iter().filter(|page| *page != "/login") {
        router = router.route(page, axum::routing::get(console::page));
    }
    router
        .route(console::FILES, axum::routing::get(console::file))
        .route("/openapi.json", openapi)
        .fallback(no_such_path)
        .with_state(admin)
}

/// The document as JSON.
pub(super) fn document() -> String {
    text(&described().1)
}

fn text(document: &Document) -> String {
    document
        .to_pretty_json()
        .expect("the document is made of text and numbers")
}

fn described() -> (Router<Arc<AdminState>>, Document) {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(gates::list))
        .routes(routes!(gates::show))
        .routes(routes!(gates::history))
        .routes(routes!(gates::servers))
        .routes(routes!(gates::reset))
        .routes(routes!(gates::isolate))
        .routes(routes!(gates::release))
        .routes(routes!(pools::list))
        .routes(routes!(pools::show))
        .routes(routes!(pools::add))
        .routes(routes!(pools::switch, pools::remove))
        .routes(routes!(protection::change))
        .routes(routes!(protection::reset))
        .routes(routes!(test_tool::test))
        .routes(routes!(operations::add, operations::list))
        .routes(routes!(operations::retry_all))
        .routes(routes!(operations::cancel_all))
        .routes(routes!(operations::show))
        .routes(routes!(operations::conflict))
        .routes(routes!(operations::retry))
        .routes(routes!(operations::cancel))
        .routes(routes!(operations::resolve))
        .routes(routes!(jobs::start, jobs::list))
        .routes(routes!(jobs::show))
        .routes(routes!(jobs::cancel))
        .routes(routes!(jobs::report))
        .routes(routes!(explain::explain))
        .routes(routes!(explain::list))
        .routes(routes!(events::events))
        .routes(routes!(events::recent))
        .routes(routes!(summary::summary))
        .routes(routes!(demo::show))
        .routes(routes!(settings::show))
        .routes(routes!(simulate::scenarios))
        .routes(routes!(simulate::of_gate))
        .routes(routes!(simulate::run))
        .routes(routes!(sign_in::sign_in, console::sign_in_page))
        .routes(routes!(sign_in::sign_out))
        .routes(routes!(health::version))
        .routes(routes!(health::healthz))
        .routes(routes!(health::readyz))
        .routes(routes!(health::metrics))
        .map_document(add_problems)
}

/// Changes the document of a router.
trait MapDocument<S> {
    fn map_document(self, change: fn(&mut Document)) -> (Router<S>, Document);
}

impl<S: Clone + Send + Sync + 'static> MapDocument<S> for OpenApiRouter<S> {
    fn map_document(self, change: fn(&mut Document)) -> (Router<S>, Document) {
        let (router, mut document) = self.split_for_parts();
        change(&mut document);
        (router, document)
    }
}

async fn no_such_path() -> Refused {
    Refused::not_found("nothing is here; `/openapi.json` describes every call")
}

#[derive(OpenApi)]
#[openapi(
    info(
        title = "Tidegate admin API",
        description = "The state of gates, pools, operations, jobs and requests of a running Tidegate, and changes by a person.",
        license(name = "MIT OR Apache-2.0")
    ),
    modifiers(&Bearer),
    components(schemas(Problem)),
    tags(
        (name = "gates", description = "Gates: one for each upstream"),
        (name = "pools", description = "Pools and their endpoints"),
        (name = "operations", description = "Operations: requests accepted for durable delivery"),
        (name = "jobs", description = "Jobs: fetches and crawls with a report"),
        (name = "requests", description = "Decision trails and live events"),
        (name = "simulate", description = "Scenarios in virtual time"),
        (name = "console", description = "Sign-in of browsers"),
        (name = "health", description = "Health and metrics")
    )
)]
struct Api;

struct Bearer;

impl Modify for Bearer {
    fn modify(&self, document: &mut Document) {
        let scheme = HttpBuilder::new()
            .scheme(HttpAuthScheme::Bearer)
            .description(Some("The token in `admin-token` of the data folder"))
            .build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(scheme));
        document.security = Some(vec![SecurityRequirement::new("token", NO_SCOPES)]);
    }
}

const NO_SCOPES: [&str; 0] = [];

/// What can go wrong with a call follows from its shape: said once for all.
fn add_problems(document: &mut Document) {
    for (path, item) in &mut document.paths.paths {
        let operations = [
            &mut item.get,
            &mut item.put,
            &mut item.post,
            &mut item.delete,
            &mut item.patch,
        ];
        for operation in operations.into_iter().flatten() {
            let is_free = operation.security.is_some();
            for kind in problems_of(path, operation, is_free) {
                add_problem(operation, kind);
            }
        }
    }
}

fn problems_of(path: &str, operation: &Operation, is_free: bool) -> Vec<Kind> {
    let mut kinds = vec![Kind::CrossSite, Kind::WrongHost];
    if !is_free {
        kinds.push(Kind::NoToken);
    }
    if operation.parameters.is_some() {
        kinds.push(Kind::BadRequest);
    }
    if path.contains('{') {
        kinds.push(Kind::NotFound);
    }
    if operation.request_body.is_some() {
        kinds.extend([
            Kind::BadRequest,
            Kind::BodyTooLarge,
            Kind::NotJson,
            Kind::Invalid,
        ]);
    }
    kinds
}

fn add_problem(operation: &mut Operation, kind: Kind) {
    let responses: &mut BTreeMap<String, RefOr<Response>> = &mut operation.responses.responses;
    let entry = responses.entry(kind.status().as_str().to_owned());
    entry.or_insert_with(|| {
        let content = ContentBuilder::new()
            .schema(Some(Ref::from_schema_name("Problem")))
            .build();
        let response = ResponseBuilder::new()
            .description(kind.title())
            .content("application/problem+json", content);
        RefOr::T(response.build())
    });
}
