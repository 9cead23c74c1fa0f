//! A Lease that the simulation itself keeps, for two replicas.

use std::sync::{Arc, Mutex};

use tokio::{
    sync::watch,
    time::{Instant, sleep},
};
use trustplane::{k8s::gate::Gate, runtime::lease};

use crate::cluster::{Cluster, lock};

pub const REPLICAS: usize = 2;

type Deadline = Arc<watch::Sender<Option<Instant>>>;

#[derive(Default)]
pub struct Election(Mutex<State>);

#[derive(Default)]
struct State {
    holder: Option<(usize, u32)>,
    /// Who is preferred next.
    next: usize,
    renewed: Option<Instant>,
    /// The gates of the processes that run.
    gates: [Option<(u32, Deadline)>; REPLICAS],
}

impl Election {
    /// The gate of a process that begins.
    pub fn enter(&self, cluster: &Cluster, replica: usize, life: u32) -> Gate {
        let deadline: Deadline = Arc::new(watch::Sender::new(None));
        let gate = Gate::until(deadline.subscribe());
        cluster.set_lease(replica, Some(deadline.subscribe()));
        lock(&self.0).gates[replica] = Some((life, deadline));
        gate
    }

    /// Keeps the Lease as the election would: the holder stops writing before anybody else may begin.
    pub async fn keep(&self, cluster: &Cluster) {
        loop {
            // There is nobody to elect for days in some stories.
            let runs = (0..REPLICAS).any(|replica| cluster.life(replica).is_some());
            sleep(if runs { lease::PERIOD } else { lease::DURATION }).await;
            let now = Instant::now();
            let is_fit = |replica, life| {
                cluster.life(replica) == Some(life) && !cluster.faults().cut_off(replica, now)
            };
            let mut state = lock(&self.0);
            if let Some((replica, life)) = state.holder {
                let waited = state.renewed.is_none_or(|at| now - at >= lease::DURATION);
                match is_fit(replica, life) {
                    true => state.lead(replica, life, now),
                    false if waited => state.holder = None,
                    false => {}
                }
            }
            if state.holder.is_none() {
                let order = [state.next, 1 - state.next];
                let life = |replica: usize| state.gates[replica].as_ref().map(|(life, _)| *life);
                let fit = order.into_iter().find_map(|replica| {
                    life(replica).filter(|life| is_fit(replica, *life)).map(|life| (replica, life))
                });
                if let Some((replica, life)) = fit {
                    state.lead(replica, life, now);
                }
            }
        }
    }

    /// The leader gives the Lease up, and the other replica takes it.
    pub fn hand_over(&self) {
        let mut state = lock(&self.0);
        let Some((replica, _)) = state.holder.take() else { return };
        if let Some((_, gate)) = &state.gates[replica] {
            gate.send_replace(None);
        }
        state.next = 1 - replica;
    }
}

impl State {
    fn lead(&mut self, replica: usize, life: u32, now: Instant) {
        self.holder = Some((replica, life));
        self.next = 1 - replica;
        self.renewed = Some(now);
        if let Some((_, gate)) = &self.gates[replica] {
            gate.send_replace(Some(now + lease::DURATION - lease::MARGIN));
        }
    }
}
