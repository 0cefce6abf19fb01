//! Model files that requests name: read once the request is parsed, so that whatever answers it opens nothing and waits for
//! no disk.
//!
//! A file lies below `[models] dirs`; of other files clients send the first bytes. A file may lie on a file system whose
//! server does not answer, so reading is left to threads of their own. A reading that hangs keeps its place, and no user has
//! more than one.

use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hyper::body::Bytes;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use super::shares::Turns;
use rooflined_advice::modelfile::{MAX_TIME, latest};
use rooflined_advice::{Catalogue, NamesModels, Opener, inspected, models, name_of, no_other_field};
use rooflined_api::ModelAnswer;
use rooflined_core::hardware::registry;
use rooflined_core::precision::WeightFormat;
use rooflined_core::refusal::{Code, Refusal};

/// Readings at once, of all users; each takes up to 256 MiB of memory.
const AT_ONCE: usize = 3;
/// Model files that are sent at once, of all users; each takes some 50 MiB.
const UPLOADS_AT_ONCE: usize = 2;
/// Parts of a model file that have come in and are not read yet.
const PARTS: usize = 4;
/// Waiting for a place.
const PATIENCE: Duration = Duration::from_secs(5);
/// Longest wait for a reading, which looks at its own time between two reads.
const LIMIT: Duration = Duration::from_secs(MAX_TIME.as_secs() + 2);
/// Most bytes of definitions of the files of one request; known models have some ten thousand each.
const MAX_DEFINITIONS: usize = 1 << 20;

/// The first bytes of a model file that somebody sends, read while they come in.
#[derive(Debug)]
pub struct FirstBytes {
    parts: mpsc::Receiver<Bytes>,
    part: Bytes,
}

impl FirstBytes {
    /// Them, and where they come in.
    #[must_use]
    pub fn new() -> (mpsc::Sender<Bytes>, Self) {
        let (sender, parts) = mpsc::channel(PARTS);
        (sender, Self { parts, part: Bytes::new() })
    }
}

impl From<Bytes> for FirstBytes {
    /// All of them at once.
    fn from(part: Bytes) -> Self {
        Self { part, ..Self::new().1 }
    }
}

impl Read for FirstBytes {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.part.is_empty() {
            let Some(part) = self.parts.blocking_recv() else { return Ok(0) };
            self.part = part;
        }
        let length = buffer.len().min(self.part.len());
        buffer[..length].copy_from_slice(&self.part.split_to(length));
        Ok(length)
    }
}

/// Places of all users together, of which nobody has more than one.
#[derive(Debug)]
struct ReadingPlaces {
    all: Arc<Semaphore>,
    users: Turns,
}

/// One of the places, given back when it is dropped.
type ReadingPlace = (OwnedSemaphorePermit, OwnedSemaphorePermit);

impl ReadingPlaces {
    fn new(places: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(places)), users: Turns::default() }
    }

    /// A place for `user`; `None` where none becomes free within `patience`.
    async fn take(&self, user: Option<u32>, patience: Duration) -> Option<ReadingPlace> {
        let both = async {
            let of_user = self.users.next(user).await?;
            Some((of_user, Arc::clone(&self.all).acquire_owned().await.ok()?))
        };
        timeout(patience, both).await.ok().flatten()
    }
}

/// Reads the files that requests name.
#[derive(Debug)]
pub struct ModelFiles {
    /// Opens what lies below the directories of models, and keeps what was read last.
    catalogue: Arc<Catalogue>,
    readings: ReadingPlaces,
    uploads: ReadingPlaces,
    patience: Duration,
    /// Longest wait for a reading.
    limit: Duration,
}

impl Default for ModelFiles {
    /// Nothing is opened.
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
            readings: ReadingPlaces::new(AT_ONCE),
            uploads: ReadingPlaces::new(UPLOADS_AT_ONCE),
            patience: PATIENCE,
            limit: LIMIT,
        }
    }

    /// The request with what is in every file that it names, and whether there are any: definitions of models, and layers of
    /// networks.
    ///
    /// # Errors
    /// A file that cannot be read, may not be or holds neither, or no place to read.
    pub async fn resolve<T: NamesModels + Send + 'static>(
        &self,
        mut request: T,
        user: Option<u32>,
    ) -> Result<(T, bool), Refusal> {
        let mut names_one = false;
        request.each_model(&mut |model, _| {
            names_one |= names_a_file(model);
            Ok(())
        })?;
        request.each_network(&mut |network, _| {
            names_one |= is_network_file(network);
            Ok(())
        })?;
        if !names_one {
            return Ok((request, false));
        }
        let catalogue = Arc::clone(&self.catalogue);
        let work = move |until| {
            let mut bytes = 0;
            request
                .each_model(&mut |model, at| inline_model_file(&catalogue, model, at, until, &mut bytes))?;
            request.each_network(&mut |network, at| {
                if is_network_file(network) {
                    *network = json!(catalogue.network(network, at, until)?);
                    count_bytes(network, at, &mut bytes)?;
                }
                Ok(())
            })?;
            Ok((request, true))
        };
        self.read(user, work).await
    }

    /// The model in a file that begins with `start`; requests may name it by the answer.
    ///
    /// # Errors
    /// It holds no model, its header goes on beyond these bytes, or there is no place to read.
    pub async fn inspect(
        &self,
        start: FirstBytes,
        name: String,
        kv_format: WeightFormat,
        user: Option<u32>,
    ) -> Result<ModelAnswer, Refusal> {
        let place = self.uploads.take(user, self.patience).await.ok_or_else(|| {
            Code::Busy.error(
                format!("another model file of this user is being sent, or {UPLOADS_AT_ONCE} of other users"),
                "ask again in a second",
            )
        })?;
        let work = move |_| Ok(models::of_file(&inspected(start, &name)?, name, kv_format));
        self.read_in(place, work).await
    }

    /// Runs `work` at a place of the user.
    async fn read<T: Send + 'static>(
        &self,
        user: Option<u32>,
        work: impl FnOnce(Instant) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let place = self.readings.take(user, self.patience).await.ok_or_else(|| {
            Code::Busy.error(
                format!("another model file of this user is being read, or {AT_ONCE} of other users"),
                "ask again in a second",
            )
        })?;
        self.read_in(place, work).await
    }

    /// Runs `work`, which is given until when it may take, in a thread of its own. It keeps the place until it is done,
    /// however long that takes.
    async fn read_in<T: Send + 'static>(
        &self,
        place: ReadingPlace,
        work: impl FnOnce(Instant) -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let until = latest();
        let (done, result) = oneshot::channel();
        let reading = std::thread::Builder::new().name("model-file".to_owned()).spawn(move || {
            let result = work(until);
            drop(place);
            let _ = done.send(result);
        });
        if let Err(error) = reading {
            return Err(
                Code::Busy.error(format!("no thread can be started: {error}"), "ask again in a second")
            );
        }
        match timeout(self.limit, result).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Code::Internal.error("the model file was not read to the end", "report this")),
            Err(_) => Err(Code::UnreadableModel.error(
                format!("reading the model files took more than {:?}", self.limit),
                "name a file on a disk that answers, or use the answer of POST /v1/models/inspect as the model",
            )),
        }
    }
}

/// Whether a model is a file that has to be read.
fn names_a_file(model: &Value) -> bool {
    model.get("path").is_some() && model.get("definition").is_none()
}

/// Puts the definition of its file into a model that names one; `bytes` counts those of the request so far.
fn inline_model_file(
    catalogue: &Catalogue,
    model: &mut Value,
    at: &str,
    until: Instant,
    bytes: &mut usize,
) -> Result<(), Refusal> {
    if !names_a_file(model) {
        return Ok(());
    }
    let Some(fields) = model.as_object_mut() else { return Ok(()) };
    no_other_field(fields, &["path"], at)?;
    let field = format!("{at}.path");
    let definition = json!(catalogue.file(name_of(fields, &field)?, &field, until)?.definition());
    count_bytes(&definition, at, bytes)?;
    fields.insert("definition".to_owned(), definition);
    Ok(())
}

/// Whether a network is a file that has to be read.
fn is_network_file(network: &Value) -> bool {
    network.get("path").is_some()
}

/// Adds what was in a file to the `bytes` of the request so far.
fn count_bytes(read: &Value, at: &str, bytes: &mut usize) -> Result<(), Refusal> {
    *bytes += read.to_string().len();
    if *bytes <= MAX_DEFINITIONS {
        return Ok(());
    }
    Err(Code::TooMany.at(
        at,
        format!("the files up to {at} have more than {MAX_DEFINITIONS} bytes of shapes"),
        "ask about fewer files at a time",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rooflined_advice::Request;
    use rooflined_api::RecommendRequest;
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
        assert!(files.readings.users.known() <= 1, "nobody else is remembered");
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

    fn field(number: u8, value: &[u8]) -> Vec<u8> {
        [&[number << 3 | 2, u8::try_from(value.len()).unwrap()], value].concat()
    }

    /// An ONNX file with a ReLU of `[batch, 8]`, as `onnx.proto3` numbers the fields.
    fn relu() -> Vec<u8> {
        let dims = [field(1, &field(2, b"batch")), field(1, &[1 << 3, 8])].concat();
        let float = field(1, &[&[1 << 3, 1], field(2, &dims).as_slice()].concat());
        let tensor = |name: &[u8]| [field(1, name), field(2, &float)].concat();
        let node = [field(1, b"x"), field(2, b"y"), field(4, b"Relu")].concat();
        let graph = [field(1, &node), field(11, &tensor(b"x")), field(12, &tensor(b"y"))].concat();
        [field(7, &graph), field(8, &[2 << 3, 17])].concat()
    }

    #[tokio::test]
    async fn a_network_is_read_below_the_directories_of_models_only() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (inside, outside) = (folder.path().join("r.onnx"), elsewhere.path().join("r.onnx"));
        std::fs::write(&inside, relu()).unwrap();
        std::fs::write(&outside, relu()).unwrap();
        std::os::unix::fs::symlink(&outside, folder.path().join("link.onnx")).unwrap();
        let files = ModelFiles::new(vec![folder.path().to_owned()]);
        let resolve = async |network: Value| {
            let request = serde_json::from_value(json!({ "workload": { "network": network } })).unwrap();
            files.resolve(Request::RecommendNetwork(Box::new(request)), None).await
        };
        let (request, from_files) =
            resolve(json!({ "path": inside, "dimensions": { "batch": 3 } })).await.unwrap();
        let Request::RecommendNetwork(request) = request else { panic!("{request:?}") };
        let layers = request.workload.network.unwrap();
        assert!(from_files);
        assert_eq!(layers["name"], "r");
        assert_eq!(layers["inputs"], json!([["x", [3, 8]]]));
        let refused = async |network: Value, code: Code, field: &str, word: &str| {
            let refusal = resolve(network).await.unwrap_err();
            assert_eq!((refusal.code, refusal.field.as_deref()), (code, Some(field)), "{refusal:?}");
            assert!(refusal.message.contains(word) && !refusal.hint.is_empty(), "{refusal:?}");
        };
        let at = "workload.network";
        let (path, dimensions) = (format!("{at}.path"), format!("{at}.dimensions"));
        for path_outside in [outside, folder.path().join("link.onnx"), folder.path().join("../r.onnx")] {
            refused(json!({ "path": path_outside }), Code::UnreadableModel, &path, "not in a directory")
                .await;
        }
        let missing = json!({ "path": folder.path().join("no.onnx") });
        refused(missing, Code::UnreadableModel, &path, "there is no file").await;
        refused(json!({ "path": inside }), Code::MissingField, &dimensions, "`batch`").await;
        refused(
            json!({ "path": inside, "dimensions": { "b": 1 } }),
            Code::InvalidField,
            &dimensions,
            "\"b\"",
        )
        .await;
        refused(json!({ "path": inside, "dimensions": { "batch": 0 } }), Code::InvalidField, at, "batch")
            .await;
        refused(json!({ "path": inside, "dims": { "batch": 1 } }), Code::InvalidField, at, "dims").await;
        refused(json!({ "path": 7 }), Code::InvalidField, at, "string").await;
    }

    #[tokio::test]
    async fn only_requests_that_name_a_file_are_altered() {
        let files = files();
        for model in [
            json!("tinyllama-1.1b"),
            json!({ "path": "/x", "definition": {} }),
            json!({ "hidden_size": 64 }),
            json!(7),
        ] {
            let request: RecommendRequest =
                serde_json::from_value(json!({ "workload": { "model": model } })).unwrap();
            assert_eq!(files.resolve(request.clone(), None).await, Ok((request, false)), "{model}");
        }
    }
}
