//! Sends a sequence of calls to both sides and compares step by step.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http::Method;
use serde_json::{Value, json};

use crate::call::{Body, Call, Until};
use crate::compare::{self, Difference};
use crate::differences;
use crate::normalise::Numbering;
use crate::placeholders::Placeholders;
use crate::side::{Answer, Side, Watching};

/// Time for differing watches to become equal.
const TIMEOUT: Duration = Duration::from_secs(3);
/// Time for the controllers of a real cluster, of which namespaces alone take five seconds.
const CONTROLLERS: Duration = Duration::from_secs(25);
/// Watches must stay equal for this long.
const QUIET: Duration = Duration::from_millis(30);

static NEXT: AtomicUsize = AtomicUsize::new(1);

/// The two servers that are compared.
#[derive(Clone)]
pub struct Pair {
    pub left: Side,
    pub right: Side,
}

/// The first step on which the two sides differ.
#[derive(Debug)]
pub struct Disagreement {
    pub step: usize,
    pub call: Call,
    pub differences: Vec<Difference>,
}

#[derive(Clone, Debug)]
pub struct Compared {
    pub method: Method,
    pub is_watch: bool,
    pub path: String,
    pub code: u16,
    pub known: Option<&'static str>,
}

struct Half<'a> {
    side: &'a Side,
    placeholders: Placeholders,
    numbering: Numbering,
}

struct OpenWatch {
    step: usize,
    call: Call,
    halves: [Watching; 2],
}

struct Run<'a> {
    left: Half<'a>,
    right: Half<'a>,
    watches: Vec<OpenWatch>,
    compared: Vec<Compared>,
    has_parted: bool,
}

/// Sends every step to both sides, in new namespaces, until they differ.
pub async fn run(pair: &Pair, steps: &[Call]) -> Result<Vec<Compared>, Box<Disagreement>> {
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let half = |side| Half {
        side,
        placeholders: Placeholders::of(number),
        numbering: Numbering::default(),
    };
    let mut run = Run {
        left: half(&pair.left),
        right: half(&pair.right),
        watches: Vec::new(),
        compared: Vec::new(),
        has_parted: false,
    };
    for letter in ["a", "b"] {
        let name = json!({ "name": format!("${{{letter}}}"), "labels": { "agree": "yes" } });
        run.step(0, &Call::post("/api/v1/namespaces", json!({ "metadata": name }))).await?;
    }
    for (index, call) in steps.iter().enumerate() {
        run.step(index, call).await?;
        if run.has_parted {
            return Ok(run.compared);
        }
    }
    run.compare_watches().await?;
    Ok(run.compared)
}

impl Run<'_> {
    async fn step(&mut self, step: usize, call: &Call) -> Result<(), Box<Disagreement>> {
        let start = Instant::now();
        loop {
            let numbering = (self.left.numbering.clone(), self.right.numbering.clone());
            match self.try_step(step, call).await {
                Ok(answer) if call.until.is_none_or(|until| is_reached(until, &answer)) => {
                    return Ok(());
                }
                Err(found) if call.until.is_none() || start.elapsed() > CONTROLLERS => {
                    return Err(found);
                }
                _ => {
                    (self.left.numbering, self.right.numbering) = numbering;
                    tokio::time::sleep(QUIET).await;
                }
            }
        }
    }

    async fn try_step(&mut self, step: usize, call: &Call) -> Result<Answer, Box<Disagreement>> {
        if call.may_be_stale() {
            tokio::join!(self.left.refresh_cache(call), self.right.refresh_cache(call));
        }
        let (left, right) = if call.is_watch() {
            let ((left, one), (right, two)) =
                tokio::join!(self.left.open(call), self.right.open(call));
            if let (Some(one), Some(two)) = (one, two) {
                self.watches.push(OpenWatch { step, call: call.clone(), halves: [one, two] });
            }
            (left, right)
        } else {
            tokio::join!(self.left.send(call), self.right.send(call))
        };
        self.compare(step, call, &left, &right)?;
        if call.method == Method::DELETE {
            tokio::join!(self.left.let_owners_go(call), self.right.let_owners_go(call));
            self.look_after_deletion(step, call, &left).await?;
        }
        Ok(left)
    }

    /// The answer to a deletion of many shows their former state. Their new state is compared
    /// afterwards.
    async fn look_after_deletion(
        &mut self,
        step: usize,
        call: &Call,
        answer: &Answer,
    ) -> Result<(), Box<Disagreement>> {
        if answer.body["items"].is_array() {
            let look = Call::get(call.path.clone());
            let (left, right) = tokio::join!(self.left.send(&look), self.right.send(&look));
            self.compare(step, &look, &left, &right)?;
        }
        Ok(())
    }

    fn compare(
        &mut self,
        step: usize,
        call: &Call,
        left: &Answer,
        right: &Answer,
    ) -> Result<(), Box<Disagreement>> {
        let seen = (self.left.normalised(call, left), self.right.normalised(call, right));
        let found = compare::answers(call, &seen.0, &seen.1);
        let known = match found.as_slice() {
            [] => None,
            _ => differences::known(call, &seen.0, &seen.1, &found),
        };
        if !found.is_empty() && known.is_none() {
            let call = call.clone();
            return Err(Box::new(Disagreement { step, call, differences: found }));
        }
        self.has_parted = known.is_some_and(|known| known.parts);
        self.compared.push(Compared {
            method: call.method.clone(),
            is_watch: call.is_watch(),
            path: call.path.clone(),
            code: left.code,
            known: known.map(|known| known.name),
        });
        Ok(())
    }

    async fn compare_watches(&mut self) -> Result<(), Box<Disagreement>> {
        for open in &self.watches {
            tokio::join!(self.left.refresh_cache(&open.call), self.right.refresh_cache(&open.call));
        }
        tokio::time::sleep(QUIET).await;
        for open in std::mem::take(&mut self.watches) {
            self.compare_watch(&open).await?;
        }
        Ok(())
    }

    async fn compare_watch(&mut self, open: &OpenWatch) -> Result<(), Box<Disagreement>> {
        let start = Instant::now();
        let events = |half: &Half<'_>, watching: &Watching| half.own_events(&open.call, watching);
        let [one, two] = &open.halves;
        while events(&self.left, one).len() != events(&self.right, two).len()
            && start.elapsed() < TIMEOUT
        {
            tokio::time::sleep(QUIET).await;
        }
        let left = self.left.normal_events(events(&self.left, one), one.has_ended());
        let right = self.right.normal_events(events(&self.right, two), two.has_ended());
        let mut found = Vec::new();
        compare::values("", &left, &right, &mut found);
        if found.is_empty() {
            return Ok(());
        }
        let call = open.call.clone();
        Err(Box::new(Disagreement { step: open.step, call, differences: found }))
    }
}

impl Half<'_> {
    async fn send(&mut self, call: &Call) -> Answer {
        let request = self.placeholders.request(call);
        let answer = match &call.bearer {
            None => self.side.call(request).await,
            Some(token) => {
                self.side.bearing(self.placeholders.fill(token)).await.call(request).await
            }
        };
        self.placeholders.record(call, &answer);
        answer
    }

    async fn open(&mut self, call: &Call) -> (Answer, Option<Watching>) {
        self.side.watch(self.placeholders.request(call)).await
    }

    fn normalised(&mut self, call: &Call, answer: &Answer) -> Answer {
        let mut answer = answer.clone();
        if let Some(Value::Array(items)) = answer.body.get_mut("items") {
            items.retain(|item| self.is_ours(call, item));
        }
        if let Some(Value::Array(rows)) = answer.body.get_mut("rows") {
            rows.retain(|row| self.is_ours(call, &row["object"]));
        }
        let prefix = match &call.body {
            Body::Json(body) => body["metadata"]["generateName"].as_str(),
            _ => None,
        };
        let prefix = prefix.map(|prefix| self.placeholders.fill(prefix));
        self.numbering.answer(&answer, prefix.as_deref())
    }

    /// A list without resourceVersion is consistent, and brings the server's cache up to date.
    async fn refresh_cache(&self, call: &Call) {
        let collection = Call::get(call.collection()).with("limit", "1");
        self.side.call(self.placeholders.request(&collection)).await;
    }

    /// Whether an object of a list over all namespaces belongs to this sequence.
    fn is_ours(&self, call: &Call, object: &Value) -> bool {
        let metadata = match object.pointer("/rows/0/object/metadata") {
            Some(of_a_row) => of_a_row,
            None => &object["metadata"],
        };
        let place = metadata["namespace"].as_str().or(metadata["name"].as_str());
        let ours = ["a", "b", "c"].map(|letter| self.placeholders.namespace(letter));
        let generated = |place: &str| place.starts_with(&self.placeholders.namespace("gen"));
        call.path.contains("${")
            || place.is_none_or(|place| ours.iter().any(|name| name == place) || generated(place))
    }

    /// Events without bookmarks, which depend on timing, except the one that ends the initial
    /// events.
    fn own_events(&self, call: &Call, watching: &Watching) -> Vec<Value> {
        let ends_initial = |event: &Value| !event["object"]["metadata"]["annotations"].is_null();
        let mut events = watching.events();
        events.retain(|event| event["type"] != "BOOKMARK" || ends_initial(event));
        events.retain(|event| event["type"] == "BOOKMARK" || self.is_ours(call, &event["object"]));
        for event in &mut events {
            if event["type"] == "BOOKMARK" {
                event["object"]["metadata"]["resourceVersion"] = Value::Null;
            }
        }
        events
    }

    fn normal_events(&mut self, events: Vec<Value>, has_ended: bool) -> Value {
        let mut events: Vec<_> = events.iter().map(|event| self.numbering.event(event)).collect();
        if has_ended {
            events.push("the watch has ended".into());
        }
        events.into()
    }

    /// Waits if a delete depends on the garbage collector, which is another process in a real
    /// cluster.
    async fn let_owners_go(&self, call: &Call) {
        let body = match &call.body {
            Body::Json(body) => body.to_string(),
            Body::Text(text) => text.clone(),
            _ => String::new(),
        };
        let text = format!("{call} {body}");
        if !text.contains("Foreground") && !text.contains("Orphan") && !text.contains("orphan") {
            return;
        }
        let start = Instant::now();
        while start.elapsed() < TIMEOUT {
            let look = Call::get(call.path.clone());
            let seen = self.side.call(self.placeholders.request(&look)).await.body.to_string();
            if !seen.contains("\"foregroundDeletion\"") && !seen.contains("\"orphan\"") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn is_reached(until: Until, answer: &Answer) -> bool {
    match until {
        Until::Code(code) => answer.code == code,
        Until::Items(count) => {
            answer.body["items"].as_array().is_some_and(|items| items.len() == count)
        }
    }
}

impl fmt::Display for Disagreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "step {}: {}", self.step, self.call)?;
        for difference in self.differences.iter().take(10) {
            let text = difference.to_string();
            writeln!(f, "  {}", text.chars().take(1_000).collect::<String>())?;
        }
        Ok(())
    }
}
