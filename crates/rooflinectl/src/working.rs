//! Progress of work that takes longer than a moment: one line on a terminal's standard error, gone when the work has ended.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::output::{Format, Printer, to_ascii};
use super::words::printable;

/// Nothing is shown of work that is shorter than this.
const DELAY: Duration = Duration::from_millis(500);
/// Between two frames of the line.
const TICK: Duration = Duration::from_millis(100);

/// What is counted meanwhile.
#[derive(Debug, Clone, Copy)]
pub enum Counted {
    /// Nothing: only the time passes.
    Nothing,
    /// Lines, of which nobody knows how many there are.
    Lines,
    /// Things, of so many.
    Of(u64),
    /// Bytes, of so many.
    Bytes(u64),
    /// Thousandths of all.
    Thousandths,
}

impl Counted {
    const fn total(self) -> Option<u64> {
        match self {
            Self::Nothing | Self::Lines => None,
            Self::Of(total) | Self::Bytes(total) => Some(total),
            Self::Thousandths => Some(1000),
        }
    }

    const fn template(self) -> &'static str {
        match self {
            Self::Nothing => "{spinner} {elapsed} {wide_msg}",
            Self::Lines => "{spinner} {elapsed} {pos} lines {wide_msg}",
            Self::Of(_) => "[{bar:30}] {pos} of {len} {elapsed} {wide_msg}",
            Self::Bytes(_) => "[{bar:30}] {bytes} of {total_bytes} {elapsed} {wide_msg}",
            Self::Thousandths => "calibrating [{bar:40}] {percent:>3} % {wide_msg}",
        }
    }
}

/// Work under way. It ends when this is dropped.
pub struct Working {
    bar: ProgressBar,
    ascii: bool,
    shown: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Working {
    /// Shows `what` once it takes long, unless the answer itself may be on the same terminal in a form for programs.
    pub fn new(printer: &Printer, counted: Counted, what: &str) -> Self {
        if printer.format == Format::Human || !std::io::stdout().is_terminal() {
            Self::on_terminal(printer.ascii, counted, what)
        } else {
            Self::unseen()
        }
    }

    /// The same where lines are printed meanwhile: only if these go elsewhere.
    pub fn beside_output(printer: &Printer, counted: Counted, what: &str) -> Self {
        if std::io::stdout().is_terminal() { Self::unseen() } else { Self::new(printer, counted, what) }
    }

    /// Shows nothing.
    pub fn unseen() -> Self {
        Self { bar: ProgressBar::hidden(), ascii: false, shown: None }
    }

    /// Whatever the form of the answer is.
    pub fn on_terminal(ascii: bool, counted: Counted, what: &str) -> Self {
        let dumb = std::env::var_os("TERM").is_some_and(|kind| kind == "dumb");
        if dumb || !std::io::stderr().is_terminal() {
            return Self::unseen();
        }
        let bar = ProgressBar::with_draw_target(counted.total(), ProgressDrawTarget::hidden());
        if let Ok(style) = ProgressStyle::with_template(counted.template()) {
            let (steps, chars) =
                if ascii { ("-\\|/ ", "=> ") } else { ("⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏ ", "█▌ ") };
            bar.set_style(style.tick_chars(steps).progress_chars(chars));
        }
        let (end, ended) = channel::<()>();
        let drawn = bar.clone();
        let delay = std::thread::Builder::new().name("progress".into()).spawn(move || {
            if ended.recv_timeout(DELAY) == Err(RecvTimeoutError::Timeout) {
                drawn.set_draw_target(ProgressDrawTarget::stderr());
                drawn.enable_steady_tick(TICK);
            }
        });
        let working = Self { bar, ascii, shown: delay.ok().map(|thread| (end, thread)) };
        working.say(what);
        working
    }

    pub fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// What is being done now.
    pub fn say(&self, what: &str) {
        let what = if self.ascii { Cow::Owned(to_ascii(what)) } else { Cow::Borrowed(what) };
        self.bar.set_message(printable(&what));
    }

    /// So much more is done.
    pub fn advance(&self, by: u64) {
        self.bar.inc(by);
    }

    /// So much is done.
    pub fn reach(&self, position: u64) {
        self.bar.set_position(position);
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        if let Some((end, delay)) = self.shown.take() {
            drop(end);
            // It has nothing that could panic, and there would be nothing to do about it.
            let _ = delay.join();
            self.bar.finish_and_clear();
        }
    }
}
