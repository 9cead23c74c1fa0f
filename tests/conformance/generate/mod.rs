//! Random sequences of calls over the kinds that the product needs. The same seed gives the same
//! sequence.
//!
//! Few names and labels, so that calls hit existing objects; mostly valid calls, so that there are
//! objects; and every mistake that clients, tools and people make.

mod creates;
mod deletes;
mod kinds;
mod objects;
mod patches;
mod reads;
mod routes;
mod unsupported;
mod updates;

use serde_json::Value;

use crate::call::Call;
pub use kinds::{KINDS, Kind};

pub struct Generator {
    rng: fastrand::Rng,
    /// The main kind of this sequence.
    favourites: [&'static Kind; 2],
    generated: usize,
}

impl Generator {
    pub fn new(seed: u64) -> Self {
        let mut rng = fastrand::Rng::with_seed(seed);
        let favourites = [any_kind(&mut rng), any_kind(&mut rng)];
        Self { rng, favourites, generated: 0 }
    }

    /// A sequence of this many calls.
    pub fn sequence(&mut self, length: usize) -> Vec<Call> {
        (0..length).map(|_| self.call()).collect()
    }

    fn call(&mut self) -> Call {
        let kind = self.kind();
        match self.rng.u32(0..100) {
            0..26 => self.create(kind),
            26..34 => self.get(kind),
            34..45 => self.list(kind),
            45..60 => self.update(kind),
            60..78 => self.patch(kind),
            78..86 => self.delete(kind),
            86..89 => self.delete_collection(kind),
            89..95 => self.watch(kind),
            _ => self.unsupported(kind),
        }
    }

    fn kind(&mut self) -> &'static Kind {
        match self.rng.u32(0..10) {
            0..5 => self.favourites[0],
            5..8 => self.favourites[1],
            _ => any_kind(&mut self.rng),
        }
    }

    /// True with this probability in percent.
    fn chance(&mut self, percent: u32) -> bool {
        self.rng.u32(0..100) < percent
    }

    fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.rng.usize(0..from.len())]
    }

    fn one_of(&mut self, mut from: Vec<Value>) -> Value {
        from.swap_remove(self.rng.usize(0..from.len()))
    }

    /// Mostly the first namespace, so that calls hit the same objects.
    fn collection(&mut self, kind: &Kind) -> String {
        let namespace = if self.chance(80) { "${a}" } else { "${b}" };
        kind.collection(namespace)
    }

    fn name(&mut self, kind: &Kind) -> &'static str {
        match kind.namespaced {
            // An Event written through both groups has two managers: see differences.rs.
            true if kind.kind == "Event" && kind.base() == "/api/v1" => self.pick(&["x", "x", "y"]),
            true => self.pick(&["a", "a", "b", "b", "c"]),
            false => self.pick(&["${a}", "${b}", "${c}"]),
        }
    }

    fn object_path(&mut self, kind: &Kind) -> String {
        let collection = self.collection(kind);
        let name = match self.chance(4) && self.generated > 0 {
            true => format!("${{name {}}}", kind.prefix(self.rng.usize(0..self.generated))),
            false => self.name(kind).to_owned(),
        };
        format!("{collection}/{name}")
    }

    fn sometimes(&mut self, percent: u32, call: Call, change: fn(&mut Self, Call) -> Call) -> Call {
        if self.chance(percent) { change(self, call) } else { call }
    }

    fn dry_run(&mut self, call: Call) -> Call {
        let how = self.pick(&["All", "All", "All", "all", ""]);
        call.with("dryRun", how)
    }

    fn field_validation(&mut self, call: Call) -> Call {
        let how = self.pick(&["Strict", "Strict", "Warn", "Ignore", "Loose", ""]);
        call.with("fieldValidation", how)
    }
}

fn any_kind(rng: &mut fastrand::Rng) -> &'static Kind {
    let mut weight = rng.u32(0..KINDS.iter().map(|kind| kind.weight).sum());
    let falls_on = |kind: &&Kind| match weight.checked_sub(kind.weight) {
        Some(rest) => {
            weight = rest;
            false
        }
        None => true,
    };
    KINDS.iter().find(falls_on).expect("weights add up")
}
