//! A client of Shardsmith in one file (Rust 1.63, and the crates in Cargo.toml). Copy it into your project.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Cursor, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;
use std::{fmt, thread};

use serde_json::Value;
use sha2::{Digest, Sha256};
use ureq::{Agent, AgentBuilder, ErrorKind, Request, Response};

const MOST_TRIES: u32 = 10;
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
const LONGEST_SILENCE: Duration = Duration::from_secs(120);

/// A SHA-256.
pub type Sum = sha2::digest::Output<Sha256>;
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug)]
pub enum Error {
    /// The service refused the request.
    Problem(Problem),
    /// No answer came, or a damaged one, each time.
    Broken(String),
    /// Something on this side could not be opened, read or written.
    Local(io::Error),
}

/// An answer that refuses a request (RFC 9457).
#[derive(Debug)]
pub struct Problem {
    pub status: u16,
    /// For programs: docs/reference/errors.md has all.
    pub code: String,
    pub detail: String,
    /// All members of the answer; null if it is no problem document.
    pub document: Value,
    pub retry_after: Option<Duration>,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            Error::Problem(Problem { status, code, detail, .. }) => write!(f, "{code} ({status}): {detail}"),
            Error::Broken(what) => f.write_str(what),
            Error::Local(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Error::Local(error)
    }
}

/// An `Idempotency-Key`: what is sent under one key is stored once, however often it is sent.
pub fn new_key() -> String {
    uuid::Uuid::new_v4().to_string()
}

/// The SHA-256 of a file.
pub fn checksum(path: &Path) -> io::Result<Sum> {
    let mut sum = Sha256::new();
    io::copy(&mut File::open(path)?, &mut sum)?;
    Ok(sum.finalize())
}

/// A body of lines, each made when it is sent.
pub fn body_of(lines: impl Iterator<Item = String>) -> impl Read {
    Body(lines, Cursor::default())
}

// The lines, and what is left of the one before.
struct Body<I>(I, Cursor<String>);

impl<I: Iterator<Item = String>> Read for Body<I> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Body(lines, rest) = self;
        if rest.fill_buf()?.is_empty() {
            *rest = Cursor::new(lines.next().map_or_else(String::new, |line| line + "\n"));
        }
        rest.read(buffer)
    }
}

/// Speaks with one service, whose URL is one as `http://127.0.0.1:8000`.
pub struct Client {
    agent: Agent,
    datasets: String,
    token: Option<String>,
}

impl Client {
    pub fn new(url: &str, token: Option<&str>) -> Self {
        let agent = AgentBuilder::new().timeout_read(LONGEST_SILENCE).timeout_write(LONGEST_SILENCE).redirects(0);
        Client {
            // An answer that comes too late, or twice, must not be taken for that to the next request on a connection.
            agent: agent.max_idle_connections(0).build(),
            datasets: format!("{}/v1/datasets", url.trim_end_matches('/')),
            token: token.map(str::to_string),
        }
    }

    /// Appends rows to a dataset, and returns their number once they are stored. `open` is called for each try, and its
    /// body sent while it is read. After an error this may be repeated with the same key. `parameters` are as in
    /// "split=test&evolve=widen" (docs/http.md). `sha256` is that of the body, if known: the service compares it.
    pub fn put<R: Read>(
        &self,
        dataset: &str,
        media_type: &str,
        key: &str,
        parameters: &str,
        sha256: Option<Sum>,
        mut open: impl FnMut() -> io::Result<R>,
    ) -> Result<u64> {
        self.call("POST", &format!("{dataset}/records?{parameters}"), |request| {
            let mut request = request.set("Content-Type", media_type).set("Idempotency-Key", key);
            if let Some(sum) = &sha256 {
                request = request.set("Content-Digest", &digest(sum));
            }
            let stored = json(accept(request.send(open()?))?)?;
            stored["num_records"].as_u64().ok_or_else(|| broken("the answer has no num_records"))
        })
    }

    /// Makes a version of all that was appended, and returns its number once it can be read. While it is not done the
    /// same is asked again, which also takes over from a server that has died. Parameters: "num_shards=8&shuffle=true".
    pub fn publish(&self, dataset: &str, key: &str, parameters: &str) -> Result<String> {
        let path = format!("{dataset}/versions?{parameters}");
        self.call("POST", &path, |request| number(request.set("Idempotency-Key", key).send_bytes(&[])))
    }

    /// Returns the number of a version, or of "latest", once it can be read. Somebody else publishes it.
    pub fn wait(&self, dataset: &str, version: &str) -> Result<String> {
        self.call("GET", &format!("{dataset}/versions/{version}"), |request| number(request.call()))
    }

    /// Hands each row of a split to `take`, as a line of JSON. After a broken connection it goes on with the next row.
    pub fn rows<F>(&self, dataset: &str, version: &str, split: &str, mut take: F) -> Result<()>
    where
        F: FnMut(&str) -> io::Result<()>,
    {
        let version = self.wait(dataset, version)?; // "latest" may become another one
        let mut taken: u64 = 0;
        self.call("GET", &format!("{dataset}/versions/{version}/records"), |request| {
            let answer = accept(request.query("split", split).query("offset", &taken.to_string()).call())?;
            let count = answer.header("Record-Count").and_then(|count| count.parse::<u64>().ok());
            let count = count.ok_or_else(|| broken("the answer has no Record-Count"))?;
            let mut lines = BufReader::new(answer.into_reader());
            let mut line = String::new();
            for _ in 0..count {
                line.clear();
                lines.read_line(&mut line).map_err(broken)?;
                let row = line.strip_suffix('\n').ok_or_else(|| broken("the rows were cut off"))?;
                taken += 1;
                take(row)?;
            }
            Ok(())
        })
    }

    /// Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded
    /// again, and what is there in part is completed. A file gets its name once its checksum is right.
    pub fn get(&self, dataset: &str, version: &str, folder: &Path) -> Result<()> {
        let version = format!("{dataset}/versions/{}", self.wait(dataset, version)?);
        let sums = self.call("GET", &format!("{version}/SHA256SUMS"), |request| {
            String::from_utf8(whole(accept(request.call())?)?).map_err(broken)
        })?;
        fs::create_dir_all(folder)?;
        for line in sums.lines() {
            let (sum, name) = line
                .split_once("  ")
                .filter(|(_, name)| Path::new(name).file_name() == Some(name.as_ref()))
                .ok_or_else(|| Error::Broken(format!("this is no line of SHA256SUMS: {line:?}")))?;
            let target = folder.join(name);
            if !matches!(checksum(&target), Ok(has) if format!("{has:x}") == sum) {
                let part = folder.join(format!("{name}.{sum:.16}.part"));
                self.download(&format!("{version}/files/{name}"), sum, &part)?;
                fs::rename(part, target)?;
            }
        }
        Ok(())
    }

    fn download(&self, path: &str, sum: &str, part: &Path) -> Result<()> {
        let mut file = OpenOptions::new().create(true).write(true).truncate(false).open(part)?;
        let done = self.call("GET", path, |mut request| {
            let size = file.seek(SeekFrom::End(0))?;
            if size > 0 {
                // A file's ETag is its checksum.
                request = request.set("Range", &format!("bytes={size}-")).set("If-Range", &format!("\"{sum}\""));
            }
            let answer = accept(request.call())?;
            if answer.status() == 200 {
                file.set_len(0)?;
                file.rewind()?;
            }
            io::copy(&mut answer.into_reader(), &mut file).map_err(broken)?;
            let has = format!("{:x}", checksum(part)?);
            if has == sum {
                return Ok(file.sync_all()?);
            }
            file.set_len(0)?;
            Err(Error::Broken(format!("{path} came with the checksum {has}, and not {sum}")))
        });
        if matches!(&done, Err(Error::Problem(problem)) if problem.status == 416) {
            fs::remove_file(part)?; // it has all bytes, but wrong ones
        }
        done
    }

    /// Sends a request until its answer is there and taken without an error, or refuses it for good.
    fn call<T>(&self, method: &str, path: &str, mut attempt: impl FnMut(Request) -> Result<T>) -> Result<T> {
        let (mut tries, mut pause) = (0, Duration::from_millis(200));
        loop {
            tries += 1;
            let mut request = self.agent.request(method, &format!("{}/{path}", self.datasets));
            if let Some(token) = &self.token {
                request = request.set("Authorization", &format!("Bearer {token}"));
            }
            let (after, why) = match attempt(request) {
                Err(Error::Problem(problem)) if problem.status == 202 => {
                    tries = 0; // a publication is under way
                    (problem.retry_after.unwrap_or(pause), "not published yet".to_string())
                }
                Err(Error::Problem(problem)) if tries < MOST_TRIES && problem.is_temporary() => {
                    (problem.retry_after.unwrap_or(pause), Error::Problem(problem).to_string())
                }
                Err(Error::Broken(what)) if tries < MOST_TRIES => (pause, what),
                done => return done,
            };
            eprintln!("{why} (again in {after:?})");
            thread::sleep(after);
            pause = LONGEST_PAUSE.min(pause * 2);
        }
    }
}

impl Problem {
    fn new(answer: Response) -> Self {
        let (status, text) = (answer.status(), answer.status_text().to_string());
        let seconds = answer.header("Retry-After").and_then(|seconds| seconds.parse().ok());
        let document = json(answer).unwrap_or_default(); // a proxy may answer
        let code = document["code"].as_str().unwrap_or("no_problem_document").to_string();
        let detail = document["detail"].as_str().unwrap_or(&text).to_string();
        Problem { status, code, detail, document, retry_after: seconds.map(Duration::from_secs) }
    }

    fn is_temporary(&self) -> bool {
        let mends = matches!(self.status, 408 | 429 | 502..=504 | 507) || self.code == "digest_mismatch";
        mends || self.retry_after.is_some()
    }
}

/// The answer, if it is what was asked for.
fn accept(answer: Result<Response, ureq::Error>) -> Result<Response> {
    match answer {
        Ok(answer) if answer.status() < 300 && answer.status() != 202 => Ok(answer),
        Ok(answer) | Err(ureq::Error::Status(_, answer)) => Err(Error::Problem(Problem::new(answer))),
        Err(error) if matches!(error.kind(), ErrorKind::InvalidUrl | ErrorKind::UnknownScheme) => {
            Err(io::Error::new(io::ErrorKind::InvalidInput, error).into())
        }
        Err(error) => Err(broken(error)),
    }
}

fn broken(what: impl ToString) -> Error {
    Error::Broken(what.to_string())
}

fn whole(answer: Response) -> Result<Vec<u8>> {
    let said = answer.header("Repr-Digest").map(str::to_string);
    let mut content = Vec::new();
    answer.into_reader().read_to_end(&mut content).map_err(broken)?;
    if content.is_empty() || matches!(said, Some(said) if said != digest(&Sha256::digest(&content))) {
        return Err(broken("the answer was damaged on its way"));
    }
    Ok(content)
}

fn json(answer: Response) -> Result<Value> {
    serde_json::from_slice(&whole(answer)?).map_err(broken)
}

/// The number of a version, out of its manifest.
fn number(answer: Result<Response, ureq::Error>) -> Result<String> {
    json(accept(answer)?)?["version"].as_str().map(str::to_string).ok_or_else(|| broken("the answer has no version"))
}

fn digest(sum: &Sum) -> String {
    format!("sha-256=:{}:", base64::encode(sum))
}
