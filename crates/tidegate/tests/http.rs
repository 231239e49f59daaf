//! Classifies errors of real clients over real sockets.
#![cfg(feature = "http")]
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use http_body_util::Empty;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use tidegate::http::{failure, never_sent};
use tidegate::{Failure, Phase};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};

type BoxError = Box<dyn Error + Send + Sync>;

/// The errors of both clients for one URL, with the client's name.
async fn errors_of(url: &str) -> [(&'static str, BoxError); 2] {
    [
        ("reqwest", reqwest_error(url).await),
        ("hyper-util", hyper_error(url).await),
    ]
}

async fn reqwest_error(url: &str) -> BoxError {
    let client = reqwest::Client::builder().no_proxy();
    let client = client.timeout(TIMEOUT).build().unwrap();
    client.get(url).send().await.unwrap_err().into()
}

async fn hyper_error(url: &str) -> BoxError {
    let client: Client<_, Empty<&'static [u8]>> =
        Client::builder(TokioExecutor::new()).build_http();
    let answer = tokio::time::timeout(TIMEOUT, client.get(url.parse().unwrap())).await;
    match answer {
        Ok(answer) => answer.unwrap_err().into(),
        Err(elapsed) => elapsed.into(),
    }
}

/// Far longer than any test takes; in paused time it fires as soon as nothing else happens.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The URL of a server that treats every connection the same.
async fn server<F: Future<Output = ()> + Send>(
    serve: impl Fn(TcpStream) -> F + Send + 'static,
) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = url_of(listener.local_addr().unwrap());
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            serve(stream).await;
        }
    });
    url
}

fn url_of(address: SocketAddr) -> String {
    format!("http://{address}/")
}

#[tokio::test]
async fn refused_connection_was_never_connected() {
    // Bound but not listening, so that no other process gets the port.
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    for (client, error) in errors_of(&url_of(socket.local_addr().unwrap())).await {
        let expected = (Failure::Connect, Phase::Connecting);
        assert_eq!(failure(&*error), expected, "{client}: {error:?}");
    }
}

#[tokio::test]
async fn connection_closed_at_once_is_a_reset() {
    let url = server(async |stream| drop(stream)).await;
    for (client, error) in errors_of(&url).await {
        // Whether the request was written before the close was noticed differs from run to run.
        assert_eq!(failure(&*error).0, Failure::Reset, "{client}: {error:?}");
    }
}

#[tokio::test]
async fn server_that_read_the_request_may_have_acted() {
    let url = server(|mut stream| async move {
        let mut request = [0; 4096];
        let read = stream.read(&mut request).await.unwrap();
        assert!(request[..read].ends_with(b"\r\n\r\n"));
    })
    .await;
    for (client, error) in errors_of(&url).await {
        let expected = (Failure::Reset, Phase::Waiting);
        assert_eq!(failure(&*error), expected, "{client}: {error:?}");
    }
}

#[tokio::test]
async fn server_that_read_part_of_the_request_may_have_acted() {
    // The unread rest turns the close into a reset.
    let url = server(|mut stream| async move {
        assert_eq!(stream.read_u8().await.unwrap(), b'G');
    })
    .await;
    for (client, error) in errors_of(&url).await {
        let expected = (Failure::Reset, Phase::Waiting);
        assert_eq!(failure(&*error), expected, "{client}: {error:?}");
    }
}

#[tokio::test]
async fn server_with_invalid_response_may_have_acted() {
    let url = server(|mut stream| async move {
        let mut request = [0; 4096];
        let _ = stream.read(&mut request).await.unwrap();
        stream.write_all(b"nonsense\r\n\r\n").await.unwrap();
    })
    .await;
    for (client, error) in errors_of(&url).await {
        let expected = (Failure::Reset, Phase::Waiting);
        assert_eq!(failure(&*error), expected, "{client}: {error:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_server_may_have_acted() {
    let url = server(async |stream| {
        std::future::pending::<()>().await;
        drop(stream);
    })
    .await;
    for (client, error) in errors_of(&url).await {
        let expected = (Failure::Timeout, Phase::Waiting);
        assert_eq!(failure(&*error), expected, "{client}: {error:?}");
    }
}

#[tokio::test]
async fn unresolved_name_was_never_connected() {
    struct NoHost;
    impl reqwest::dns::Resolve for NoHost {
        fn resolve(&self, _: reqwest::dns::Name) -> reqwest::dns::Resolving {
            Box::pin(async { Err(io::Error::other("no such name").into()) })
        }
    }
    let client = reqwest::Client::builder().no_proxy();
    let client = client.dns_resolver(NoHost).build().unwrap();
    let error = client
        .get("http://api.example.com/")
        .send()
        .await
        .unwrap_err();
    assert_eq!(
        failure(&error),
        (Failure::Dns, Phase::Connecting),
        "{error:?}"
    );

    let no_host = tower::service_fn(|_| async {
        Err::<std::iter::Empty<SocketAddr>, _>(io::Error::other("no such name"))
    });
    let connector = HttpConnector::new_with_resolver(no_host);
    let client: Client<_, Empty<&'static [u8]>> =
        Client::builder(TokioExecutor::new()).build(connector);
    let uri = "http://api.example.com/".parse().unwrap();
    let error = client.get(uri).await.unwrap_err();
    assert_eq!(
        failure(&error),
        (Failure::Dns, Phase::Connecting),
        "{error:?}"
    );
}

#[test]
fn tower_timeout_is_a_timeout() {
    let error = tower::timeout::error::Elapsed::new();
    assert_eq!(failure(&error), (Failure::Timeout, Phase::Waiting));
}

#[tokio::test]
async fn unsendable_requests_were_never_sent() {
    let relative = [reqwest_error("/items").await, hyper_error("/items").await];
    let secure = errors_of("https://127.0.0.1:1/").await;
    let all = relative.into_iter().chain(secure.map(|(_, error)| error));
    for error in all {
        assert!(never_sent(&*error), "{error:?}");
    }
    let url = server(async |stream| drop(stream)).await;
    for (client, error) in errors_of(&url).await {
        assert!(!never_sent(&*error), "{client}: {error:?}");
    }
}
