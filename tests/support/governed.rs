//! A daemon with the real governor and servers; the privileged helper is a mock that always succeeds.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use rooflined::server::dbus::{self, Bus};
use rooflined::server::{Control, Limits, Request, Socket, clock, http};
use rooflined_core::board::{
    ActiveMode, Knob, Order, OrderAnswer, PowerMode, PowerModes, ReadBack, Reading, Setting, SwitchOutcome,
    SwitchReport,
};
use rooflined_core::names::InstructionSet;
use rooflined_core::units::{Bytes, Hertz, Seconds};
use rooflined_governor::{Command, Effect, Event, Governor, Policy, Reply, Ticket};
use rooflined_predict::learning::Residuals;
use rooflined_predict::snapshot::{Automatic, Snapshot};
use tokio::sync::{mpsc, oneshot, watch};

use super::pace;

/// The SMs that are on; another mask takes a reboot.
const MASK: u32 = 240;
const MODES: [(u32, &str, f64, u32); 4] =
    [(0, "25W", 918e6, MASK), (2, "15W", 612e6, MASK), (5, "7W", 408e6, MASK), (8, "MAXN", 1300e6, 0)];

fn setting(param: &str, arg: &str, value: &str) -> Setting {
    Setting { param: param.into(), arg: arg.into(), paths: Vec::new(), value: value.into() }
}

fn modes() -> PowerModes {
    let mode = |(id, name, gpu_hz, mask): (u32, &str, f64, u32)| PowerMode {
        id,
        name: name.into(),
        cores_online: None,
        cpu_max: None,
        gpu_max: Some(Hertz(gpu_hz)),
        memory_max: None,
        tpc_mask: Some(mask),
        sm_online: None,
        knob: Knob::Nvpmodel,
        settings: vec![
            setting("GPU", "MIN_FREQ", "306000000"),
            setting("DLA0_CORE", "MAX_FREQ", "614400000"),
        ],
    };
    PowerModes { default: Some(0), modes: MODES.map(mode).to_vec(), ..PowerModes::default() }
}

/// Control is enabled, and every mode allowed.
pub fn policy() -> Policy {
    Policy {
        sampling_period: Seconds(1.0),
        idle_period: Seconds(30.0),
        automatic: false,
        max_age: Seconds(1e6),
        instruction_set: InstructionSet::Auto,
        time_limit_s: 10,
        memory_limit_bytes: 1 << 20,
        max_load_ratio: 1.0,
        max_temperature_c: 100.0,
        min_free_memory: Bytes(0.0),
        back_off: Seconds(1.0),
        accelerator: None,
        elsewhere: false,
        control_enabled: true,
        allowed_modes: None,
        dwell: Seconds(0.2),
        auto: Automatic::Off,
        hysteresis_ratio: 0.1,
    }
}

/// A mock of the privileged helper: every order succeeds.
struct Helper {
    live: ActiveMode,
    journal: Option<ActiveMode>,
}

impl Helper {
    fn enter(&mut self, mode: ActiveMode, dry_run: bool) -> OrderAnswer {
        let before =
            if dry_run { self.live.clone() } else { std::mem::replace(&mut self.live, mode.clone()) };
        let report = SwitchReport {
            outcome: SwitchOutcome::Applied,
            asked: mode,
            before: Some(before),
            reached: ReadBack { mode: Some(self.live.clone()), ..ReadBack::default() },
            message: "done".into(),
            hint: None,
            writes: Vec::new(),
            took: Seconds(0.001),
        };
        OrderAnswer::Switched { report }
    }

    fn answer(&mut self, what: Order) -> OrderAnswer {
        match what {
            Order::SetMode { id, name, dry_run, .. } => {
                if !dry_run {
                    self.journal.get_or_insert(self.live.clone());
                }
                self.enter(ActiveMode { id, name }, dry_run)
            }
            Order::Restore => {
                let original = self.journal.take().unwrap_or_else(|| self.live.clone());
                self.enter(original, false)
            }
            Order::Settle => {
                self.journal = None;
                OrderAnswer::Settled
            }
            Order::Status => OrderAnswer::Status { journal: None, recovered: None, now: ReadBack::default() },
        }
    }
}

/// A daemon without a machine: its governor, its loop and its control socket.
pub struct Daemon {
    pub socket: PathBuf,
    pub snapshots: watch::Receiver<Arc<Snapshot>>,
    pub switches: Arc<Mutex<u64>>,
    _dir: tempfile::TempDir,
    events: mpsc::UnboundedSender<Event>,
    _stop: watch::Sender<()>,
}

impl Daemon {
    pub fn start(policy: &Policy) -> Self {
        Self::start_on(policy, Bus::None)
    }

    /// Also on a bus.
    pub fn start_on(policy: &Policy, bus: Bus) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("control.sock");
        let fake = super::snapshot();
        let mut board = fake.board.clone();
        board.modes = Reading::Known(modes());
        let mut state = fake.state.clone();
        let live = ActiveMode { id: 0, name: "25W".into() };
        state.power_mode = Reading::Known(live.clone());
        state.tpc_mask = Reading::Known(MASK);
        let record = Some(super::metered(&board));
        let mut governor = Governor::new(clock::now(), board, state, record, Residuals::default(), policy);
        let (published, snapshots) = watch::channel(governor.snapshot());
        let (tx, mut requests) = mpsc::channel::<rooflined::server::Request>(64);
        let (stop, stopped) = watch::channel(());
        let (events, mut received) = mpsc::unbounded_channel();
        let switches = Arc::new(Mutex::new(0));
        let (path, shown, counted) = (socket.clone(), snapshots.clone(), Arc::clone(&switches));
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                let listener = tokio::net::UnixListener::bind(path).unwrap();
                let limits = Limits { heartbeat: Duration::from_millis(500), ..Limits::default() };
                let stopping = || {
                    let mut stopped = stopped.clone();
                    // Ends with the sender.
                    async move { drop(stopped.changed().await) }
                };
                let control = Control::new(tx);
                tokio::spawn(dbus::run_at(pace(), bus, shown.clone(), control.clone(), drop, stopping()));
                tokio::spawn(http::serve(listener, Socket::Control, shown, control, limits, stopping()));
                let mut helper = Helper { live, journal: None };
                let mut waiting: HashMap<Ticket, oneshot::Sender<Reply>> = HashMap::new();
                let (mut last, mut wake_at) = (0, None::<tokio::time::Instant>);
                loop {
                    let far = tokio::time::Instant::now() + Duration::from_secs(3600);
                    let event = tokio::select! {
                        request = requests.recv() => {
                            let Some(request) = request else { return };
                            last += 1;
                            match request {
                                Request::Command { command: command @ Command::Control { .. }, reply } => {
                                    waiting.insert(last, reply);
                                    Event::Requested { ticket: last, command }
                                }
                                Request::Event(
                                    event @ (Event::ConnectionClosed { .. } | Event::ConnectionLost { .. }),
                                ) => event,
                                _ => continue,
                            }
                        }
                        Some(event) = received.recv() => event,
                        () = tokio::time::sleep_until(wake_at.unwrap_or(far)) => Event::Tick,
                    };
                    let mut events = vec![event];
                    while let Some(event) = events.pop() {
                        for effect in governor.handle(clock::now(), event) {
                            match effect {
                                Effect::Publish(snapshot) => drop(published.send_replace(snapshot)),
                                Effect::Actuate { order, what } => {
                                    *counted.lock().unwrap() +=
                                        u64::from(matches!(what, Order::SetMode { .. }));
                                    let answer = Box::new(helper.answer(what));
                                    events.push(Event::OrderAnswered { order, answer });
                                }
                                Effect::Reply { ticket, reply } => {
                                    if let Some(client) = waiting.remove(&ticket) {
                                        drop(client.send(reply));
                                    }
                                }
                                Effect::WakeAt(at) => {
                                    wake_at = at.map(|at| {
                                        let left = (at - clock::now().boottime).max(Seconds::ZERO).get();
                                        tokio::time::Instant::now() + Duration::from_secs_f64(left)
                                    });
                                }
                                _ => {}
                            }
                        }
                    }
                }
            });
        });
        let daemon = Self { socket, snapshots, switches, _dir: dir, events, _stop: stop };
        daemon.until("the socket", |_| daemon.socket.exists());
        daemon
    }

    pub fn until(&self, what: &str, done: impl Fn(&Snapshot) -> bool) {
        let end = Instant::now() + Duration::from_secs(10);
        while !done(&self.snapshots.borrow()) {
            assert!(Instant::now() < end, "{what} did not come: {:?}", self.snapshots.borrow().power);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// What happens beside the clients.
    pub fn tell(&self, event: Event) {
        self.events.send(event).unwrap();
    }

    /// Two readings that show another mode: somebody else has switched.
    pub fn switch_behind_its_back(&self, id: u32, name: &str) {
        for _ in 0..2 {
            let mut state = self.snapshots.borrow().state.clone();
            state.taken_at = clock::now().boottime;
            state.power_mode = Reading::Known(ActiveMode { id, name: name.into() });
            self.tell(Event::Sampled(Box::new(state)));
        }
    }

    pub fn mode(&self) -> String {
        self.snapshots.borrow().state.power_mode.known().unwrap().name.clone()
    }
}
