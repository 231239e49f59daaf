//! A request whose body cannot be copied is retried.

use http::{Request, Response};
use tidegate::Limiter;
use tidegate::tower::RetryLayer;
use tower::{Service, ServiceBuilder, service_fn};

struct Stream;

fn client(limiter: Limiter) -> impl Service<Request<Stream>> {
    ServiceBuilder::new()
        .layer(RetryLayer::new(limiter))
        .service(service_fn(|_: Request<Stream>| async {
            Ok::<_, std::io::Error>(Response::new(()))
        }))
}

fn main() {}
