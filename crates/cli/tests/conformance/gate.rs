//! A conversation with `tidegate replay --policy gate`: an event is sent, its answer read.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

pub(crate) struct Gate {
    process: Child,
    events: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// What left a line since the last answer but one: times and numbers.
    pub(crate) admitted: Vec<(f64, u64)>,
    asks: u64,
    key: &'static str,
}

impl Gate {
    /// Strategy `aimd` with these settings and everything else at its default.
    pub(crate) fn new(settings: &[&str]) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_tidegate"))
            .args(["replay", "--policy", "gate", "--set", "strategy=aimd"])
            .args(settings.iter().flat_map(|setting| ["--set", setting]))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        Self {
            events: process.stdin.take().unwrap(),
            answers: BufReader::new(process.stdout.take().unwrap()),
            process,
            admitted: Vec::new(),
            asks: 0,
            key: "example.com",
        }
    }

    /// Asks at `at`: the answer, and the number of this ask.
    pub(crate) fn acquire(&mut self, at: f64) -> (Value, u64) {
        self.asks += 1;
        let answer = self.send(&json!({ "at": at, "acquire": self.key }));
        (answer, self.asks)
    }

    /// Asks at `at` and must be admitted: the number of this ask.
    #[track_caller]
    pub(crate) fn admit(&mut self, at: f64) -> u64 {
        let (answer, number) = self.acquire(at);
        assert_eq!(answer["decision"], "admit", "at {at}: {answer}");
        number
    }

    /// Settles an ask with a status, answered within 100 ms.
    pub(crate) fn settle(&mut self, at: f64, number: u64, status: u64) -> Value {
        self.settle_with(at, number, json!({ "status": status, "latency_ms": 100 }))
    }

    /// Settles an ask with whatever `fields` say.
    pub(crate) fn settle_with(&mut self, at: f64, number: u64, mut fields: Value) -> Value {
        fields["at"] = json!(at);
        fields["settle"] = json!(number);
        self.send(&fields)
    }

    /// Asks at `at`, must be admitted, and settles at once.
    #[track_caller]
    pub(crate) fn attempt(&mut self, at: f64, status: u64) -> Value {
        let number = self.admit(at);
        self.settle(at, number, status)
    }

    /// Ends the conversation.
    pub(crate) fn end(self) {
        let Self {
            mut process,
            events,
            answers,
            ..
        } = self;
        drop(events);
        assert_eq!(
            answers.lines().count(),
            0,
            "nothing leaves the line at the end"
        );
        assert_eq!(process.wait().unwrap().code(), Some(0));
    }

    fn send(&mut self, event: &Value) -> Value {
        writeln!(self.events, "{event}").unwrap();
        self.admitted.clear();
        loop {
            let mut line = String::new();
            self.answers.read_line(&mut line).unwrap();
            let answer: Value =
                serde_json::from_str(&line).unwrap_or_else(|_| panic!("no answer to {event}"));
            match answer["admitted"].as_u64() {
                Some(number) => self.admitted.push((answer["at"].as_f64().unwrap(), number)),
                None => return answer,
            }
        }
    }
}
