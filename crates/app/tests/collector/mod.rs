//! A collector of traces and metrics, which decodes exports with the published types.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use app::telemetry::Telemetry;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, KeyValue};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;

/// The path that something was sent to, and its body.
type Export = (String, Vec<u8>);

/// A collector that accepts everything.
pub(crate) struct Collector {
    pub(crate) url: String,
    exports: Arc<Mutex<Vec<Export>>>,
}

impl Collector {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let exports = Arc::new(Mutex::new(Vec::new()));
        let taken = Arc::clone(&exports);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, taken) = (stream.unwrap(), Arc::clone(&taken));
                thread::spawn(move || {
                    let mut stream = BufReader::new(stream);
                    while let Some(export) = read_export(&mut stream) {
                        taken.lock().unwrap().push(export);
                        let response = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                        stream.get_mut().write_all(response.as_bytes()).unwrap();
                    }
                });
            }
        });
        Self { url, exports }
    }

    pub(crate) fn bodies(&self, path: &str) -> Vec<Vec<u8>> {
        let exports = self.exports.lock().unwrap();
        let wanted = exports.iter().filter(|(sent_to, _)| sent_to == path);
        wanted.map(|(_, body)| body.clone()).collect()
    }

    pub(crate) fn spans(&self) -> Vec<Span> {
        let bodies = self.bodies("/v1/traces").into_iter();
        bodies
            .map(|body| ExportTraceServiceRequest::decode(&*body).unwrap())
            .flat_map(|export| export.resource_spans)
            .inspect(|of| {
                let resource = of.resource.as_ref().unwrap();
                assert_eq!(text(&resource.attributes, "service.name"), "tidegate");
            })
            .flat_map(|of| of.scope_spans)
            .flat_map(|of| of.spans)
            .collect()
    }
}

fn read_export(stream: &mut impl BufRead) -> Option<Export> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    assert!(
        head.contains("content-type: application/x-protobuf\r\n"),
        "{head}"
    );
    let length = head
        .lines()
        .find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap().parse().unwrap()];
    stream.read_exact(&mut body).unwrap();
    let path = head.split(' ').nth(1).unwrap().to_owned();
    Some((path, body))
}

fn value<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a Value> {
    let found = attributes.iter().find(|pair| pair.key == name)?;
    let AnyValue { value } = found.value.as_ref()?;
    value.as_ref()
}

pub(crate) fn text(attributes: &[KeyValue], name: &str) -> String {
    match value(attributes, name) {
        Some(Value::StringValue(text)) => text.clone(),
        other => panic!("{name} is {other:?} of {attributes:?}"),
    }
}

pub(crate) fn number(attributes: &[KeyValue], name: &str) -> i64 {
    match value(attributes, name) {
        Some(Value::IntValue(number)) => *number,
        other => panic!("{name} is {other:?} of {attributes:?}"),
    }
}

/// Stops the exporter, which exports what is left.
pub(crate) fn stop(telemetry: Telemetry) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    runtime.unwrap().block_on(telemetry.stop());
}
