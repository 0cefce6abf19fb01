//! Model files that requests name: read before anything else of such a request is looked at, so that whatever answers it
//! opens nothing and waits for no disk.
//!
//! A file lies below `[models] dirs`, or the client has opened it and attached the descriptor. Either may lie on a file
//! system whose server does not answer: reading and closing are left to threads of their own. A reading that hangs keeps
//! its place, and no user has more than one.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Map, Value, json};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::time::timeout;

use answer::modelfile::{MAX_TIME, ModelFile, latest};
use answer::{Catalogue, Opener, each_model, name_of, no_other_field, opened};
use roofline::hardware::registry;
use roofline::refusal::{Code, Refusal};

/// Readings at once, of all users; each takes up to 256 MiB of memory.
const AT_ONCE: usize = 3;
/// Waiting for a place.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for a reading, which looks at its own time between two reads.
const LIMIT: Duration = Duration::from_secs(MAX_TIME.as_secs() + 2);
/// Most bytes of contents of the files of one request; known models have some ten thousand each.
const MAX_CONTENTS: usize = 1 << 20;
/// Most descriptors of one request.
pub const MAX_DESCRIPTORS: usize = 2;

/// A descriptor that a client sent. Closing one may take as long as its file system likes, so no task waits for that.
#[derive(Debug)]
pub struct Received {
    file: Option<File>,
    /// Of how many it is one, until it is closed.
    counted: Vec<Arc<AtomicUsize>>,
}

impl Received {
    /// One among these many.
    #[must_use]
    pub fn new(descriptor: OwnedFd, counted: Vec<Arc<AtomicUsize>>) -> Self {
        for count in &counted {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Self { file: Some(File::from(descriptor)), counted }
    }
}

impl Drop for Received {
    fn drop(&mut self) {
        let (file, counted) = (self.file.take(), std::mem::take(&mut self.counted));
        let close = move || {
            drop(file);
            for count in counted {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        };
        if Handle::try_current().is_err() {
            return close();
        }
        // Where no thread can be had it is closed here, with the closure.
        let _ = thread("descriptor").spawn(close);
    }
}

fn thread(name: &str) -> std::thread::Builder {
    std::thread::Builder::new().name(name.to_owned())
}

/// Reads the files that requests name.
#[derive(Debug)]
pub struct ModelFiles {
    /// Opens what lies below the directories of models, and keeps what was read last.
    catalogue: Arc<Catalogue>,
    places: Arc<Semaphore>,
    /// One place for each user who reads.
    users: Mutex<HashMap<Option<u32>, Arc<Semaphore>>>,
    patience: Duration,
    /// Longest wait for a reading.
    limit: Duration,
}

impl Default for ModelFiles {
    /// Nothing is opened; descriptors are read.
    fn default() -> Self {
        Self::new(Vec::new())
    }
}

impl ModelFiles {
    /// Opens files below `dirs`.
    #[must_use]
    pub fn new(dirs: Vec<PathBuf>) -> Self {
        Self {
            catalogue: Arc::new(Catalogue::new(registry().clone(), Opener::Daemon(dirs))),
            places: Arc::new(Semaphore::new(AT_ONCE)),
            users: Mutex::default(),
            patience: PATIENCE,
            limit: LIMIT,
        }
    }

    /// A body with the contents of every file that it names; one that names none stays as it is, and so does one that is no
    /// JSON, which is refused elsewhere.
    ///
    /// # Errors
    /// A file that cannot be read, may not be or holds no model, a descriptor that did not come, or no place to read.
    pub async fn told<'b>(
        &self,
        body: &'b [u8],
        descriptors: &[Arc<Received>],
        user: Option<u32>,
    ) -> Result<Cow<'b, [u8]>, Refusal> {
        if !may_name_a_file(body) {
            return Ok(Cow::Borrowed(body));
        }
        let Ok(mut request) = serde_json::from_slice::<Value>(body) else { return Ok(Cow::Borrowed(body)) };
        let mut names_one = false;
        each_model(&mut request, &mut |model, _| {
            names_one |= is_to_be_read(model);
            Ok(())
        })?;
        if !names_one {
            return Ok(Cow::Borrowed(body));
        }
        let (catalogue, descriptors) = (Arc::clone(&self.catalogue), descriptors.to_vec());
        let work = move |until| {
            let mut reading = Reading { catalogue: &catalogue, descriptors: &descriptors, until, bytes: 0 };
            each_model(&mut request, &mut |model, at| reading.tell(model, at))?;
            super::command::encode(&request)
        };
        self.read(user, work).await.map(Cow::Owned)
    }

    /// Runs `work`, which is given until when it may take, in a thread of its own.
    async fn read<T: Send + 'static>(
        &self,
        user: Option<u32>,
        work: impl FnOnce(Instant) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.place(user).await?;
        let until = latest();
        let (done, result) = oneshot::channel();
        let reading = thread("model-file").spawn(move || {
            let result = work(until);
            drop(place);
            let _ = done.send(result);
        });
        if let Err(error) = reading {
            return Err(Code::Busy.error(format!("no thread can be had: {error}"), "ask again in a second"));
        }
        match timeout(self.limit, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Code::Internal.error("the model file was not read to the end", "report this")),
            Err(_) => Err(Code::UnreadableModel.error(
                format!("reading the model files took more than {:?}", self.limit),
                "name a file on a disk that answers, or send what rooflinectl models contents FILE prints",
            )),
        }
    }

    /// A place of this user's and one of all, given back when a reading is done, however long that takes.
    async fn place(
        &self,
        user: Option<u32>,
    ) -> Result<(OwnedSemaphorePermit, OwnedSemaphorePermit), Refusal> {
        let own = {
            let mut users = self.users.lock().unwrap_or_else(PoisonError::into_inner);
            // Who neither reads nor waits is forgotten.
            users.retain(|_, place| Arc::strong_count(place) > 1);
            Arc::clone(users.entry(user).or_insert_with(|| Arc::new(Semaphore::new(1))))
        };
        let places = Arc::clone(&self.places);
        let both = async {
            let own = own.acquire_owned().await.ok()?;
            Some((own, places.acquire_owned().await.ok()?))
        };
        match timeout(self.patience, both).await {
            Ok(Some(both)) => Ok(both),
            _ => Err(Code::Busy.error(
                format!("another model file of this user is being read, or {AT_ONCE} of other users"),
                "ask again in a second, or send what rooflinectl models contents FILE prints",
            )),
        }
    }
}

/// Whether a body may name a file: for those that do not, this is all that is looked at.
#[must_use]
pub fn may_name_a_file(body: &[u8]) -> bool {
    let has = |key: &[u8]| body.windows(key.len()).any(|part| part == key);
    has(b"\"path\"") || has(b"\"fd\"")
}

fn is_to_be_read(model: &Map<String, Value>) -> bool {
    model.contains_key("fd") || (model.contains_key("path") && !model.contains_key("contents"))
}

/// The reading of the files of one request.
struct Reading<'a> {
    catalogue: &'a Catalogue,
    descriptors: &'a [Arc<Received>],
    until: Instant,
    /// Of contents so far.
    bytes: usize,
}

impl Reading<'_> {
    /// Puts the contents of its file into `model`, where it names one.
    fn tell(&mut self, model: &mut Map<String, Value>, at: &str) -> Result<(), Refusal> {
        if !is_to_be_read(model) {
            return Ok(());
        }
        let contents = if model.contains_key("fd") {
            let (file, name) = self.attached(model, at)?;
            model.remove("fd");
            // What its runs are filed under.
            let name =
                name.unwrap_or_else(|| format!("{} of {} weights", file.model.name, file.model.parameters()));
            model.insert("path".to_owned(), Value::String(name.replace(char::is_control, "?")));
            json!(file.contents())
        } else {
            no_other_field(model, &["path"], at)?;
            let field = format!("{at}.path");
            json!(self.catalogue.file(name_of(model, &field)?, &field, self.until)?.contents())
        };
        self.bytes += contents.to_string().len();
        if self.bytes > MAX_CONTENTS {
            return Err(Code::TooMany.at(
                at,
                format!("the models up to {at} have more than {MAX_CONTENTS} bytes of shapes"),
                "ask about fewer files at a time",
            ));
        }
        model.insert("contents".to_owned(), contents);
        Ok(())
    }

    /// The model in a file that came with the request, and its name where that is told.
    fn attached(&self, model: &Map<String, Value>, at: &str) -> Result<(ModelFile, Option<String>), Refusal> {
        no_other_field(model, &["fd", "path"], at)?;
        let field = format!("{at}.fd");
        let came = self.descriptors.len();
        let number = model.get("fd").and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
        let Some(number) = number else {
            return Err(Code::InvalidField.at(
                &field,
                format!("{field} is no number of a descriptor"),
                "write {\"fd\":0} for the first one attached to this request",
            ));
        };
        let received = self.descriptors.get(number).and_then(|received| received.file.as_ref());
        let Some(file) = received else {
            return Err(Code::InvalidField.at(
                &field,
                format!("{field} is {number}, and {came} descriptors came with this request"),
                format!(
                    "attach the open file to the first byte of the request (sendmsg with SCM_RIGHTS), at most \
                     {MAX_DESCRIPTORS}; or send what rooflinectl models contents FILE prints"
                ),
            ));
        };
        let name =
            if model.contains_key("path") { Some(name_of(model, &format!("{at}.path"))?) } else { None };
        let file = opened(file, name.unwrap_or_default(), &field, self.until)?;
        Ok((file, name.map(str::to_owned)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    fn files() -> ModelFiles {
        let (patience, limit) = (Duration::from_millis(50), Duration::from_millis(200));
        ModelFiles { patience, limit, ..ModelFiles::default() }
    }

    /// Whether a user's file is read, on a machine that may have other things to do first.
    async fn reads(files: &ModelFiles, user: Option<u32>) -> bool {
        for _ in 0..50 {
            if files.read(user, |_| Ok(7)).await == Ok(7) {
                return true;
            }
        }
        false
    }

    /// A reading that hangs until the sender goes.
    fn hanging() -> (mpsc::Sender<()>, impl FnOnce(Instant) -> Result<(), Refusal>) {
        let (release, hangs) = mpsc::channel::<()>();
        (release, move |_| {
            let _ = hangs.recv();
            Ok(())
        })
    }

    #[tokio::test]
    async fn a_reading_that_hangs_is_given_up_and_keeps_the_place_of_its_user_alone() {
        let files = files();
        let (release, hangs) = hanging();
        assert_eq!(files.read(Some(1), hangs).await.unwrap_err().code, Code::UnreadableModel);
        assert_eq!(files.read(Some(1), |_| Ok(())).await.unwrap_err().code, Code::Busy);
        assert!(reads(&files, Some(2)).await && reads(&files, None).await);
        assert!(!reads(&files, Some(1)).await);
        drop(release);
        assert!(reads(&files, Some(1)).await);
        assert!(files.users.lock().unwrap().len() <= 1, "nobody else is remembered");
    }

    #[tokio::test]
    async fn no_more_are_read_at_once_than_there_are_places() {
        let files = files();
        let mut held = Vec::new();
        for user in 0..AT_ONCE {
            let (release, hangs) = hanging();
            held.push(release);
            let user = u32::try_from(user).unwrap();
            assert_eq!(files.read(Some(user), hangs).await.unwrap_err().code, Code::UnreadableModel);
        }
        assert_eq!(files.read(Some(99), |_| Ok(())).await.unwrap_err().code, Code::Busy);
        held.pop();
        assert!(reads(&files, Some(99)).await);
    }

    #[tokio::test]
    async fn a_reading_that_panics_gives_its_place_back() {
        // Telling of a panic takes its time.
        let files = ModelFiles { limit: Duration::from_secs(60), ..files() };
        for _ in 0..2 {
            let error =
                files.read(Some(1), |_| -> Result<(), Refusal> { panic!("a bug") }).await.unwrap_err();
            assert_eq!(error.code, Code::Internal);
        }
    }

    #[tokio::test]
    async fn only_bodies_that_name_a_file_are_altered() {
        let files = files();
        for body in [
            "",
            "{",
            "{\"path\"",
            "[1]",
            r#"{"workload":{"model":"tinyllama-1.1b"}}"#,
            r#"{"workload":{"model":{"path":"/x","contents":{}}}}"#,
            r#"{"path":"/v1/recommend"}"#,
        ] {
            let told = files.told(body.as_bytes(), &[], None).await.unwrap();
            assert!(matches!(told, Cow::Borrowed(same) if same == body.as_bytes()), "{body}");
        }
    }
}
