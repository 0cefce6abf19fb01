//! What takes longer than a moment says so: one line on a terminal's standard error, gone when the work has ended.

use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle, TermLike};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::{flag, low_level};

use super::output::{Format, Printer, to_ascii};

/// Nothing is shown of work that is shorter than this.
const DELAY: Duration = Duration::from_millis(500);
/// Between two looks of the line.
const TICK: Duration = Duration::from_millis(100);
/// What ends this program unless it is caught.
const SIGNALS: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

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
        Self::start(ascii, counted, what, true)
    }

    /// The same in a program that handles signals itself.
    pub fn leaving_signals(ascii: bool, counted: Counted, what: &str) -> Self {
        Self::start(ascii, counted, what, false)
    }

    fn start(ascii: bool, counted: Counted, what: &str, catch: bool) -> Self {
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
        let (end, ended) = channel();
        let drawn = bar.clone();
        let thread =
            std::thread::Builder::new().name("progress".into()).spawn(move || draw(&drawn, &ended, catch));
        let working = Self { bar, ascii, shown: thread.ok().map(|thread| (end, thread)) };
        working.say(what);
        working
    }

    pub fn is_shown(&self) -> bool {
        self.shown.is_some()
    }

    /// What is being done now.
    pub fn say(&self, what: &str) {
        let what = if self.ascii { Cow::Owned(to_ascii(what)) } else { Cow::Borrowed(what) };
        self.bar.set_message(what.replace(char::is_control, "?"));
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
        if let Some((end, thread)) = self.shown.take() {
            drop(end);
            // It has nothing that could panic, and there would be nothing to do about it.
            let _ = thread.join();
        }
    }
}

/// Draws until the work has ended or a signal ends this program, and leaves an empty line either way.
fn draw(bar: &ProgressBar, ended: &Receiver<()>, catch: bool) {
    if ended.recv_timeout(DELAY) != Err(RecvTimeoutError::Timeout) {
        return;
    }
    let caught = catch.then(Caught::new);
    bar.set_draw_target(ProgressDrawTarget::term_like_with_hz(Box::new(Line), 20));
    loop {
        bar.tick();
        let over = ended.recv_timeout(TICK) != Err(RecvTimeoutError::Timeout);
        let signal = caught.as_ref().and_then(Caught::signal);
        if over || signal.is_some() {
            bar.finish_and_clear();
            drop(caught);
            if let Some(signal) = signal {
                // As it would have ended without the line.
                let _ = low_level::emulate_default_handler(signal);
            }
            return;
        }
    }
}

/// Signals noted instead of obeyed; once this is dropped they end the program again.
struct Caught {
    noted: Vec<(i32, Arc<AtomicBool>)>,
    over: Arc<AtomicBool>,
}

impl Caught {
    fn new() -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let note = |signal| {
            let seen = Arc::new(AtomicBool::new(false));
            flag::register_conditional_default(signal, Arc::clone(&over)).ok()?;
            flag::register(signal, Arc::clone(&seen)).ok()?;
            Some((signal, seen))
        };
        Self { noted: SIGNALS.into_iter().filter_map(note).collect(), over }
    }

    fn signal(&self) -> Option<i32> {
        self.noted.iter().find(|(_, seen)| seen.load(Ordering::Relaxed)).map(|(signal, _)| *signal)
    }
}

impl Drop for Caught {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Standard error, where the cursor waits at the start of the line: what the terminal echoes, such as `^C`, stays on the line that
/// is cleared.
#[derive(Debug)]
struct Line;

impl Line {
    fn put(text: &str) -> io::Result<()> {
        io::stderr().lock().write_all(text.as_bytes())
    }

    fn moved(by: usize, direction: char) -> io::Result<()> {
        if by == 0 { Ok(()) } else { Self::put(&format!("\x1b[{by}{direction}")) }
    }
}

impl TermLike for Line {
    fn width(&self) -> u16 {
        rustix::termios::tcgetwinsize(io::stderr())
            .ok()
            .map(|size| size.ws_col)
            .filter(|columns| *columns > 0)
            .unwrap_or(80)
    }

    fn move_cursor_up(&self, by: usize) -> io::Result<()> {
        Self::moved(by, 'A')
    }

    fn move_cursor_down(&self, by: usize) -> io::Result<()> {
        Self::moved(by, 'B')
    }

    fn move_cursor_right(&self, by: usize) -> io::Result<()> {
        Self::moved(by, 'C')
    }

    fn move_cursor_left(&self, by: usize) -> io::Result<()> {
        Self::moved(by, 'D')
    }

    fn write_line(&self, text: &str) -> io::Result<()> {
        Self::put(&format!("{text}\n"))
    }

    fn write_str(&self, text: &str) -> io::Result<()> {
        Self::put(text)
    }

    fn clear_line(&self) -> io::Result<()> {
        Self::put("\r\x1b[2K")
    }

    fn flush(&self) -> io::Result<()> {
        Self::put("\r")?;
        io::stderr().lock().flush()
    }
}
