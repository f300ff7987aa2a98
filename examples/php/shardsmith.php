<?php

declare(strict_types=1);

// A client of Shardsmith in one file, with the curl extension (PHP 8.1). Copy it into your project; the last lines make
// a command of it.

/** An answer that refuses a request (RFC 9457). docs/reference/errors.md has all codes. */
final class Problem extends RuntimeException
{
    public function __construct(public readonly int $status, public readonly string $problemCode, public readonly string $detail)
    {
        parent::__construct("$problemCode ($status): $detail");
    }
}

/** No answer, or a damaged one: the same may be asked again. */
final class Broken extends RuntimeException {}

final class Shardsmith
{
    private const MOST_TRIES = 10;
    private const TEMPORARY = [408, 429, 502, 503, 504, 507];

    public function __construct(
        private readonly string $url = 'http://127.0.0.1:8000',
        private readonly ?string $token = null,
    ) {}

    /** A key: what is sent under one is stored once, however often it is sent. */
    public static function newKey(): string
    {
        return bin2hex(random_bytes(16));
    }

    /**
     * Appends rows, and gives what is stored of them. After an exception this may be repeated with the same key.
     * @param callable(): iterable<string> $open the body in pieces, for each try anew; they are sent as they are made
     * @param array<string, mixed> $parameters of an append in docs/http.md: ['split' => 'test']
     * @param ?string $sha256 of the body, if it is known (`sha256`), which the service compares with what arrives
     */
    public function put(
        string $dataset,
        callable $open,
        string $type,
        string $key,
        array $parameters = [],
        ?string $sha256 = null,
    ): array {
        $headers = ["Content-Type: $type", "Idempotency-Key: $key", 'Transfer-Encoding: chunked'];
        if ($sha256 !== null) {
            $headers[] = 'Content-Digest: ' . self::digest($sha256);
        }
        $prepare = function (CurlHandle $curl, array $headers) use ($open): array {
            $pieces = (fn () => yield from $open())();
            $pieces->valid(); // begins it: what it throws is no broken connection
            $rest = '';
            curl_setopt_array($curl, [CURLOPT_UPLOAD => true, CURLOPT_CUSTOMREQUEST => 'POST']);
            curl_setopt($curl, CURLOPT_READFUNCTION, function ($curl, $file, int $most) use ($pieces, &$rest): string {
                while ($rest === '' && $pieces->valid()) {
                    $rest = $pieces->current();
                    $pieces->next();
                }
                $piece = substr($rest, 0, $most);
                $rest = substr($rest, $most);
                return $piece;
            });
            return $headers;
        };
        return $this->json("$dataset/records?" . http_build_query($parameters), $headers, $prepare);
    }

    /** The digest of a body, which is made once more to be sent: PHP's curl has no trailers. */
    public static function sha256(iterable $pieces): string
    {
        $sum = hash_init('sha256');
        foreach ($pieces as $piece) {
            hash_update($sum, $piece);
        }
        return hash_final($sum, true);
    }

    /**
     * Makes a version of all that was appended, and gives its number once it can be read. While it is not done the same
     * is asked again, which also takes over from a server that has died in the middle of it.
     * @param array<string, mixed> $parameters of a publication in docs/http.md: ['num_shards' => 8]
     */
    public function publish(string $dataset, string $key, array $parameters = []): string
    {
        $prepare = function (CurlHandle $curl, array $headers): array {
            curl_setopt_array($curl, [CURLOPT_POST => true, CURLOPT_POSTFIELDS => '']);
            return $headers;
        };
        $versions = "$dataset/versions?" . http_build_query($parameters);
        return $this->json($versions, ["Idempotency-Key: $key", 'Content-Type:'], $prepare)['version'];
    }

    /** The number of a version, or of "latest", once it can be read. Somebody else publishes it. */
    public function wait(string $dataset, string $version): string
    {
        return $this->json("$dataset/versions/$version")['version'];
    }

    /**
     * The rows of a split, as lines of JSON. They come some thousands at a time, each time all or none.
     * @return Generator<string>
     */
    public function rows(string $dataset, string $version, string $split = 'train'): Generator
    {
        $records = "$dataset/versions/{$this->wait($dataset, $version)}/records?split=$split&length=5000&offset=";
        for ($offset = 0; $lines = $this->page($records . $offset); $offset += count($lines)) {
            yield from $lines;
        }
    }

    /** @return list<string> */
    private function page(string $path): array
    {
        return $this->call($path, [], null, function (string $content, array $headers): array {
            $lines = $content === '' ? [] : explode("\n", rtrim($content, "\n"));
            $isWhole = count($lines) === (int) ($headers['record-count'] ?? -1);
            return $isWhole ? $lines : throw new Broken('The rows were damaged on their way.');
        });
    }

    /**
     * Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded again,
     * and what is there in part is completed. A file gets its name once its checksum is right.
     */
    public function get(string $dataset, string $version, string $folder): void
    {
        $files = "$dataset/versions/{$this->wait($dataset, $version)}";
        $sums = $this->call("$files/SHA256SUMS", [], null, function (string $content): string {
            return $content !== '' ? $content : throw new Broken('The list of files is empty.');
        });
        is_dir($folder) || mkdir($folder, recursive: true);
        foreach (explode("\n", rtrim($sums)) as $line) {
            [$sum, $name] = explode('  ', $line, 2);
            basename($name) === $name ?: throw new RuntimeException("This is no name of a file: $name");
            if (!is_file("$folder/$name") || hash_file('sha256', "$folder/$name") !== $sum) {
                $this->download("$files/files/$name", $sum, "$folder/$name");
            }
        }
    }

    private function download(string $path, string $sum, string $target): void
    {
        $part = "$target." . substr($sum, 0, 16) . '.part';
        $file = fopen($part, 'ab') ?: throw new RuntimeException("$part cannot be written.");
        $resume = function (CurlHandle $curl, array $headers) use ($file, $sum): array {
            $size = fstat($file)['size'];
            curl_setopt($curl, CURLOPT_WRITEFUNCTION, function (CurlHandle $curl, string $piece) use ($file): int {
                static $isBegun = false;
                $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
                if ($status === 200 && !$isBegun) {
                    ftruncate($file, 0); // all of it comes
                }
                $isBegun = true;
                return $status < 300 ? (int) fwrite($file, $piece) : strlen($piece);
            });
            // A file's ETag is its checksum.
            return $size === 0 ? $headers : [...$headers, "Range: bytes=$size-", "If-Range: \"$sum\""];
        };
        try {
            $this->call($path, [], $resume, function () use ($file, $part, $sum, $target): void {
                fflush($file);
                if (hash_file('sha256', $part) !== $sum) {
                    ftruncate($file, 0);
                    throw new Broken("$target was damaged on its way.");
                }
            });
        } catch (Problem $problem) {
            if ($problem->status === 416) {
                unlink($part); // it has all its bytes, but wrong ones
            }
            throw $problem;
        }
        fclose($file);
        rename($part, $target);
    }

    private function json(string $path, array $headers = [], ?callable $prepare = null): array
    {
        return $this->call($path, $headers, $prepare, function (string $content): array {
            $value = json_decode($content, true);
            return is_array($value) ? $value : throw new Broken('The answer was damaged on its way.');
        });
    }

    /** Sends a request until its answer is there and taken without an exception, or refuses it for good. */
    private function call(string $path, array $headers, ?callable $prepare, callable $take): mixed
    {
        // Digests are of what is sent, so nothing is to be compressed.
        $headers = [...$headers, 'Accept-Encoding: identity', 'Expect:'];
        if ($this->token !== null) {
            $headers[] = "Authorization: Bearer $this->token";
        }
        $pause = 0.2;
        for ($tries = 1;; $tries++) {
            $found = [];
            $curl = curl_init(rtrim($this->url, '/') . "/v1/datasets/$path");
            curl_setopt_array($curl, [
                CURLOPT_RETURNTRANSFER => true,
                CURLOPT_CONNECTTIMEOUT => 10,
                CURLOPT_LOW_SPEED_LIMIT => 1,
                CURLOPT_LOW_SPEED_TIME => 120,
                CURLOPT_HEADERFUNCTION => function (CurlHandle $curl, string $line) use (&$found): int {
                    if (str_contains($line, ':')) {
                        [$name, $value] = explode(':', $line, 2);
                        $found[strtolower($name)] = trim($value);
                    }
                    return strlen($line);
                },
            ]);
            curl_setopt($curl, CURLOPT_HTTPHEADER, $prepare === null ? $headers : $prepare($curl, $headers));
            $after = null;
            try {
                $content = curl_exec($curl);
                if ($content === false) {
                    throw new Broken(curl_error($curl));
                }
                $status = curl_getinfo($curl, CURLINFO_RESPONSE_CODE);
                $after = $found['retry-after'] ?? null;
                if ($status >= 300) {
                    $said = json_decode((string) $content, true);
                    $said = is_array($said) ? $said : []; // a proxy answers
                    throw new Problem($status, $said['code'] ?? 'no_problem_document', $said['detail'] ?? '');
                }
                if ($status !== 202) {
                    $digest = $found['repr-digest'] ?? null;
                    if (is_string($content) && $digest !== null && $digest !== self::digest(hash('sha256', $content, true))) {
                        throw new Broken('The answer was damaged on its way.');
                    }
                    return $take(is_string($content) ? $content : '', $found);
                }
                $tries = 0; // a publication is under way
            } catch (Problem | Broken $failure) {
                $refused = $failure instanceof Problem && !in_array($failure->status, self::TEMPORARY, true);
                if ($tries === self::MOST_TRIES || $refused && $after === null && $failure->problemCode !== 'digest_mismatch') {
                    throw $failure;
                }
                error_log("{$failure->getMessage()} (again in " . ($after ?? $pause) . ' s)');
            }
            usleep((int) (($after === null ? $pause : (float) $after) * 1e6));
            $pause = min($pause * 2, 30);
        }
    }

    private static function digest(string $sha256): string
    {
        return 'sha-256=:' . base64_encode($sha256) . ':';
    }
}

/** A file in pieces. */
function pieces(string $path): Generator
{
    static $isInputSent = false;
    if ($path === '-' && $isInputSent) {
        throw new RuntimeException('Standard input cannot be sent again.');
    }
    $isInputSent = $isInputSent || $path === '-';
    $file = $path === '-' ? STDIN : fopen($path, 'rb');
    while ($file !== false && !feof($file)) {
        yield (string) fread($file, 1 << 16);
    }
}

if (realpath($_SERVER['SCRIPT_FILENAME']) === __FILE__) {
    $service = new Shardsmith(getenv('SHARDSMITH_CLIENT_URL') ?: 'http://127.0.0.1:8000', getenv('SHARDSMITH_CLIENT_TOKEN') ?: null);
    [, $verb, $dataset, $what, $a, $b, $c] = [...$argv, null, null, null, null, null, null];
    parse_str(($verb === 'put' ? $c : $a) ?? '', $parameters);
    try {
        if ($verb === 'put' && $what !== null) {
            $what === '-' || is_file($what) ?: throw new RuntimeException("There is no file $what.");
            $sum = $what === '-' ? null : Shardsmith::sha256(pieces($what));
            $type = $a ?? 'application/x-ndjson';
            $stored = $service->put($dataset, fn () => pieces($what), $type, $b ?? Shardsmith::newKey(), $parameters, $sum);
            echo $stored['num_records'], " rows\n";
        } elseif ($verb === 'publish' && $dataset !== null) {
            echo $service->publish($dataset, $what ?? Shardsmith::newKey(), $parameters), "\n";
        } elseif ($verb === 'wait' && $what !== null) {
            echo $service->wait($dataset, $what), "\n";
        } elseif ($verb === 'rows' && $what !== null) {
            foreach ($service->rows($dataset, $what, $a ?? 'train') as $row) {
                echo $row, "\n";
            }
        } elseif ($verb === 'get' && $a !== null) {
            $service->get($dataset, $what, $a);
            echo "$a\n";
        } else {
            throw new RuntimeException('put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]], '
                . 'wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER');
        }
    } catch (RuntimeException $failure) {
        fwrite(STDERR, $failure->getMessage() . "\n");
        exit(1);
    }
}
