import static java.util.Objects.requireNonNullElse;

import java.io.*;
import java.math.BigInteger;
import java.net.URI;
import java.net.http.*;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse.BodyHandlers;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.security.*;
import java.time.Duration;
import java.util.*;
import java.util.function.Consumer;
import java.util.regex.Pattern;

/**
 * A client of Shardsmith in one file, with the standard library alone (Java 11). Copy it into your project; delete
 * main, which makes a command of it. It may be used by several threads.
 */
public final class Shardsmith {
    /** An answer that refuses a request (RFC 9457). docs/reference/errors.md has all codes. */
    public static final class Problem extends IOException {
        private static final long serialVersionUID = 1;
        public final int status;
        public final String code;

        Problem(int status, String code, String detail) {
            super(code + " (" + status + "): " + detail);
            this.status = status;
            this.code = code;
        }
    }

    /** Opens a body. */
    public interface Source {
        InputStream open() throws IOException;
    }

    private interface Prepare {
        HttpRequest.Builder request() throws IOException;
    }

    private interface Take<T> {
        T from(HttpResponse<InputStream> answer) throws IOException;
    }

    private static final Set<Integer> TEMPORARY = Set.of(408, 429, 502, 503, 504, 507);
    private static final int MOST_TRIES = 10;

    private final HttpClient client = HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1)
        .connectTimeout(Duration.ofSeconds(10)).build();
    private final String datasets;
    private final String token;

    /** @param token may be null */
    public Shardsmith(String url, String token) {
        this.datasets = url.replaceFirst("/$", "") + "/v1/datasets/";
        this.token = token;
    }

    /** A key: what is sent under one is stored once, however often it is sent. */
    public static String newKey() {
        return UUID.randomUUID().toString();
    }

    /**
     * Appends rows; gives their number once they are stored. They are sent while they are read, never held in memory.
     * After an exception the call may be repeated with the same key.
     *
     * @param parameters those of an append in docs/http.md, as "split=test&evolve=widen"; may be empty
     * @param source opened anew for each try, at the first row
     * @param sha256 of the body, which the service compares with what arrives; null if it is not known beforehand
     */
    public long put(String dataset, String mediaType, String key, String parameters, byte[] sha256, Source source)
            throws IOException, InterruptedException {
        return call(() -> {
            // The publisher wants a supplier, which throws no IOException: the stream is opened here.
            var content = source.open();
            var request = request(dataset + "/records?" + parameters).header("Content-Type", mediaType)
                .header("Idempotency-Key", key).POST(BodyPublishers.ofInputStream(() -> content));
            return sha256 == null ? request : request.header("Content-Digest", digest(sha256));
        }, answer -> Long.parseLong(member(whole(answer), "num_records")));
    }

    /**
     * Makes a version of all that was appended; gives its number once it can be read. While it is not done the same is
     * asked again, which also takes over from a server that has died in the middle of it.
     *
     * @param parameters those of a publication in docs/http.md, as "num_shards=8&shuffle=true"; may be empty
     */
    public String publish(String dataset, String key, String parameters) throws IOException, InterruptedException {
        return call(() -> request(dataset + "/versions?" + parameters).header("Idempotency-Key", key)
            .POST(BodyPublishers.noBody()), answer -> member(whole(answer), "version"));
    }

    /** The number of a version, or of "latest", once it can be read. Somebody else publishes it. */
    public String await(String dataset, String version) throws IOException, InterruptedException {
        return call(() -> request(dataset + "/versions/" + version), answer -> member(whole(answer), "version"));
    }

    /** Hands on each row of a split, as JSON. After a broken connection it goes on with the next row. */
    public void rows(String dataset, String version, String split, Consumer<String> row)
            throws IOException, InterruptedException {
        var path = dataset + "/versions/" + await(dataset, version) + "/records?split=" + split + "&offset=";
        var taken = new long[1];
        call(() -> request(path + taken[0]), answer -> {
            var lines = new BufferedReader(new InputStreamReader(answer.body(), StandardCharsets.UTF_8));
            var left = answer.headers().firstValueAsLong("Record-Count").orElseThrow(() -> damaged("the rows"));
            for (; left > 0; left--) {
                var line = lines.readLine(); // a row that is cut off is no object
                if (line == null || !line.endsWith("}")) {
                    throw damaged("the rows");
                }
                taken[0]++;
                row.accept(line);
            }
            return null;
        });
    }

    /**
     * Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded
     * again, and what is there in part is completed. A file gets its name once its checksum is right.
     */
    public void get(String dataset, String version, Path folder) throws IOException, InterruptedException {
        var path = dataset + "/versions/" + await(dataset, version);
        Files.createDirectories(folder);
        for (var line : call(() -> request(path + "/SHA256SUMS"), Shardsmith::whole).split("\n")) {
            var sum = line.substring(0, 64);
            var name = line.substring(66);
            var target = folder.resolve(name);
            if (!target.getFileName().toString().equals(name)) {
                throw new IOException("This is no name of a file: " + name);
            }
            if (!Files.exists(target) || !hex(sha256(Files.newInputStream(target))).equals(sum)) {
                download(path + "/files/" + name, sum, target);
            }
        }
    }

    private void download(String path, String sum, Path target) throws IOException, InterruptedException {
        var part = target.resolveSibling(target.getFileName() + "." + sum.substring(0, 16) + ".part");
        try {
            call(() -> {
                var size = Files.exists(part) ? Files.size(part) : 0;
                var request = request(path);
                // A file's ETag is its checksum.
                return size == 0 ? request : request.header("Range", "bytes=" + size + "-").header("If-Range", '"' + sum + '"');
            }, answer -> {
                var how = answer.statusCode() == 206 ? StandardOpenOption.APPEND : StandardOpenOption.TRUNCATE_EXISTING;
                try (var file = Files.newOutputStream(part, StandardOpenOption.CREATE, StandardOpenOption.WRITE, how)) {
                    answer.body().transferTo(file);
                }
                if (!hex(sha256(Files.newInputStream(part))).equals(sum)) {
                    Files.delete(part);
                    throw damaged(target.toString());
                }
                return null;
            });
        } catch (Problem problem) {
            if (problem.status == 416) {
                Files.delete(part); // it has all its bytes, but wrong ones
            }
            throw problem;
        }
        Files.move(part, target, StandardCopyOption.ATOMIC_MOVE);
    }

    private HttpRequest.Builder request(String path) {
        var request = HttpRequest.newBuilder(URI.create(datasets + path));
        return token == null ? request : request.header("Authorization", "Bearer " + token);
    }

    /** Sends a request until its answer is there and taken without an exception, or refuses it for good. */
    @SuppressWarnings("try") // the body is read elsewhere, and closed here
    private <T> T call(Prepare prepare, Take<T> take) throws IOException, InterruptedException {
        long pause = 200;
        for (var tries = 1; ; tries++) {
            var after = pause;
            var request = prepare.request().build();
            try {
                var answer = client.send(request, BodyHandlers.ofInputStream());
                var retryAfter = answer.headers().firstValue("Retry-After");
                after = retryAfter.map(Long::parseLong).map(seconds -> seconds * 1000).orElse(pause);
                try (var closed = answer.body()) {
                    if (answer.statusCode() == 202) { // a publication is under way
                        tries = 0;
                    } else if (answer.statusCode() < 300) {
                        return take.from(answer);
                    } else {
                        var problem = problem(answer);
                        var temporary = TEMPORARY.contains(problem.status) || problem.code.equals("digest_mismatch");
                        tries = temporary || retryAfter.isPresent() ? tries : MOST_TRIES;
                        throw problem;
                    }
                }
            } catch (IOException broken) { // no answer, or a damaged one
                if (tries == MOST_TRIES) {
                    throw broken;
                }
                System.err.printf("%s (again in %.1f s)%n", broken, after / 1000.0);
            }
            Thread.sleep(after);
            pause = Math.min(pause * 2, 30_000);
        }
    }

    private static Problem problem(HttpResponse<InputStream> answer) {
        try {
            var text = whole(answer);
            return new Problem(answer.statusCode(), member(text, "code"), member(text, "detail"));
        } catch (IOException other) { // a proxy answers
            return new Problem(answer.statusCode(), "no_problem_document", other.getMessage());
        }
    }

    private static String whole(HttpResponse<InputStream> answer) throws IOException {
        var content = answer.body().readAllBytes();
        var said = answer.headers().firstValue("Repr-Digest");
        if (content.length == 0 || said.isPresent() && !said.get().equals(digest(sha256(new ByteArrayInputStream(content))))) {
            throw damaged("the answer");
        }
        return new String(content, StandardCharsets.UTF_8);
    }

    /** The first member of that name: a text or a number. Java has no reader of JSON; take yours, if you have one. */
    private static String member(String json, String name) throws IOException {
        var found = Pattern.compile('"' + name + "\": (?:\"((?:[^\"\\\\]|\\\\.)*)\"|(\\d+))").matcher(json);
        if (!found.find()) {
            throw damaged("the answer");
        }
        return found.group(1) == null ? found.group(2) : found.group(1).replaceAll("\\\\([\"\\\\/])", "$1");
    }

    private static IOException damaged(String what) {
        return new IOException("damaged on the way: " + what);
    }

    private static String digest(byte[] sha256) {
        return "sha-256=:" + Base64.getEncoder().encodeToString(sha256) + ":";
    }

    private static String hex(byte[] bytes) {
        return String.format("%064x", new BigInteger(1, bytes));
    }

    /** Of all that is left of a stream, which it closes. */
    public static byte[] sha256(InputStream content) throws IOException {
        try (var digest = new DigestInputStream(content, MessageDigest.getInstance("SHA-256"))) {
            digest.transferTo(OutputStream.nullOutputStream());
            return digest.getMessageDigest().digest();
        } catch (NoSuchAlgorithmException none) {
            throw new AssertionError(none);
        }
    }

    public static void main(String[] arguments) throws InterruptedException {
        var a = Arrays.copyOf(arguments, 6);
        var verb = arguments.length + " " + a[0];
        var url = requireNonNullElse(System.getenv("SHARDSMITH_CLIENT_URL"), "http://127.0.0.1:8000");
        var service = new Shardsmith(url, System.getenv("SHARDSMITH_CLIENT_TOKEN"));
        var out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        try {
            if (verb.matches("[3-6] put")) {
                var isInput = a[2].equals("-");
                var opened = new boolean[1];
                Source source = () -> {
                    if (isInput && opened[0]) {
                        throw new IOException("standard input cannot be sent again");
                    }
                    opened[0] = true;
                    return isInput ? System.in : Files.newInputStream(Path.of(a[2]));
                };
                var type = requireNonNullElse(a[3], "application/x-ndjson");
                var key = requireNonNullElse(a[4], newKey());
                var sum = isInput ? null : sha256(source.open());
                out.println(service.put(a[1], type, key, requireNonNullElse(a[5], ""), sum, source) + " rows");
            } else if (verb.matches("[2-4] publish")) {
                out.println(service.publish(a[1], requireNonNullElse(a[2], newKey()), requireNonNullElse(a[3], "")));
            } else if (verb.equals("3 wait")) {
                out.println(service.await(a[1], a[2]));
            } else if (verb.matches("[34] rows")) {
                service.rows(a[1], a[2], requireNonNullElse(a[3], "train"), row -> out.print(row + "\n"));
            } else if (verb.equals("4 get")) {
                service.get(a[1], a[2], Path.of(a[3]));
                out.println(a[3]);
            } else {
                throw new IllegalArgumentException("put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET "
                    + "[KEY [PARAMETERS]], wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER");
            }
            out.flush();
        } catch (IOException | IllegalArgumentException failure) {
            System.err.println(failure instanceof Problem ? failure.getMessage() : failure.toString());
            System.exit(1);
        }
    }
}
