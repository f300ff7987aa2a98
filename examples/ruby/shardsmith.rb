# frozen_string_literal: true

# A client of Shardsmith in one file, with the standard library alone (Ruby 3.0). Copy it into your project; the last
# lines make a command of it.
require "digest"
require "fileutils"
require "json"
require "net/http"
require "securerandom"

class Shardsmith
  MOST_TRIES = 10
  TEMPORARY = [408, 429, 502, 503, 504, 507].freeze
  # No answer, or a damaged one.
  class Broken < StandardError; end
  BROKEN = [Broken, SystemCallError, SocketError, IOError, Timeout::Error, Net::ProtocolError, Net::HTTPBadResponse,
            JSON::ParserError].freeze

  # An answer that refuses a request (RFC 9457). docs/reference/errors.md has all codes.
  class Problem < StandardError
    attr_reader :status, :code, :detail

    def initialize(status, problem)
      @status = status
      @code = problem.fetch("code", "no_problem_document")
      @detail = problem.fetch("detail", "")
      super("#{code} (#{status}): #{detail}")
    end
  end

  # An append, in chunks. Where its digest does not go in front it follows the last one: Net::HTTP has no trailers.
  class Append < Net::HTTP::Post
    Chunks = Struct.new(:socket, :sum) do
      def write(piece)
        sum << piece
        socket.write("#{piece.bytesize.to_s(16)}\r\n", piece, "\r\n")
        piece.bytesize
      end
    end

    def exec(socket, version, path)
      return super if key?("Content-Digest")

      self["Trailer"] = "Content-Digest"
      write_header(socket, version, path)
      chunks = Chunks.new(socket, Digest::SHA256.new)
      IO.copy_stream(body_stream, chunks)
      socket.write("0\r\nContent-Digest: #{Shardsmith.digest(chunks.sum.digest)}\r\n\r\n")
    end
  end

  # Strings that are made while they are sent, as IO.copy_stream reads them.
  class Pieces
    def initialize(pieces) = @pieces = pieces.each_entry

    def readpartial(most, buffer)
      buffer.clear
      loop { (buffer << @pieces.next.b).bytesize < most || break } # until there is none left
      buffer.empty? ? raise(EOFError) : buffer
    end
  end

  # A key: what is sent under one is stored once, however often it is sent.
  def self.new_key = SecureRandom.uuid

  def self.digest(sha256) = "sha-256=:#{[sha256].pack("m0")}:"

  def initialize(url = "http://127.0.0.1:8000", token = nil)
    @datasets = "#{url.chomp("/")}/v1/datasets"
    # Digests are of what is sent, so nothing is to be compressed.
    @headers = { "Accept-Encoding" => "identity" }
    @headers["Authorization"] = "Bearer #{token}" if token
  end

  # Appends rows, and gives what is stored of them. The block gives the body, for each try anew: an IO, or an Enumerable
  # of strings, which is sent while it is made. After an error this may be repeated with the same key. `sha256` is that
  # of the body, if it is known; else it follows the body as a trailer. The service compares it with what arrives.
  # `parameters` are those of an append in docs/http.md: { split: "test" }.
  def put(dataset, type: "application/x-ndjson", key: Shardsmith.new_key, parameters: {}, sha256: nil, &open)
    headers = { "Content-Type" => type, "Idempotency-Key" => key, "Transfer-Encoding" => "chunked" }
    headers["Content-Digest"] = Shardsmith.digest(sha256) if sha256
    records = "#{dataset}/records?#{URI.encode_www_form(parameters)}"
    call(Append, records, -> { [headers, open.call] }) { |answer| JSON.parse(whole(answer)) }
  end

  # Makes a version of all that was appended, and gives its number once it can be read. While it is not done the same is
  # asked again, which also takes over from a server that has died in the middle of it. `parameters` are those of a
  # publication in docs/http.md: { num_shards: 8 }.
  def publish(dataset, key: Shardsmith.new_key, parameters: {})
    versions = "#{dataset}/versions?#{URI.encode_www_form(parameters)}"
    call(Net::HTTP::Post, versions, -> { [{ "Idempotency-Key" => key }] }) do |answer|
      JSON.parse(whole(answer)).fetch("version")
    end
  end

  # The number of a version, or of "latest", once it can be read. Somebody else publishes it.
  def wait(dataset, version)
    call(Net::HTTP::Get, "#{dataset}/versions/#{version}") { |answer| JSON.parse(whole(answer)).fetch("version") }
  end

  # Yields each row of a split, as a line of JSON. After a broken connection it goes on with the next row.
  def rows(dataset, version, split = "train", &block)
    return enum_for(:rows, dataset, version, split) unless block

    records = "#{dataset}/versions/#{wait(dataset, version)}/records?split=#{split}&offset="
    offset = 0
    call(Net::HTTP::Get, -> { "#{records}#{offset}" }) do |answer|
      left = Integer(answer["Record-Count"] || raise(Broken, "The answer does not say how many rows it has."))
      rest = +""
      answer.read_body do |piece|
        rest << piece
        while left.positive? && (line = rest.slice!(/\A[^\n]*\n/))
          offset += 1
          left -= 1
          yield line.chomp.force_encoding("UTF-8")
        end
      end
      raise Broken, "The rows were cut off." if left.positive?
    end
  end

  # Downloads a version into a folder: shards, and the files that describe them. What is there is not downloaded again,
  # and what is there in part is completed. A file gets its name once its checksum is right.
  def get(dataset, version, folder)
    files = "#{dataset}/versions/#{wait(dataset, version)}"
    FileUtils.mkdir_p(folder)
    call(Net::HTTP::Get, "#{files}/SHA256SUMS") { |answer| whole(answer) }.each_line(chomp: true) do |line|
      sum, name = line.split("  ", 2)
      raise ArgumentError, "This is no name of a file: #{name}" unless File.basename(name) == name

      target = File.join(folder, name)
      download("#{files}/files/#{name}", sum, target) unless File.file?(target) && Digest::SHA256.file(target) == sum
    end
  end

  private

  def download(path, sum, target)
    part = "#{target}.#{sum[0, 16]}.part"
    File.open(part, "ab") do |file|
      # A file's ETag is its checksum.
      resume = -> { [file.size.zero? ? {} : { "Range" => "bytes=#{file.size}-", "If-Range" => %("#{sum}") }] }
      call(Net::HTTP::Get, path, resume) do |answer|
        file.truncate(0) if answer.code == "200"
        begin
          answer.read_body { |piece| file.write(piece) }
        ensure
          file.flush
        end
        next file.fsync if Digest::SHA256.file(part) == sum

        file.truncate(0)
        raise Broken, "#{target} was damaged on its way."
      end
    end
    File.rename(part, target)
  rescue Problem => e
    File.delete(part) if e.status == 416 # it has all its bytes, but wrong ones
    raise
  end

  # Sends a request until its answer is there and taken without an error, or refuses it for good.
  def call(method, path, prepare = -> { [{}] })
    pause = 0.2
    tries = 0
    loop do
      tries += 1
      after = nil
      headers, body = prepare.call
      uri = URI("#{@datasets}/#{path.respond_to?(:call) ? path.call : path}")
      request = method.new(uri, @headers.merge(headers))
      request.body_stream = body.respond_to?(:read) ? body : Pieces.new(body) if body
      begin
        Net::HTTP.start(uri.host, uri.port, use_ssl: uri.scheme == "https", max_retries: 0, read_timeout: 120) do |http|
          http.request(request) do |answer|
            after = answer["Retry-After"]
            case answer.code.to_i
            when 202 then tries = 0 # a publication is under way
            when 200..299 then return yield answer
            else raise Problem.new(answer.code.to_i, problem(answer))
            end
          end
        end
      rescue Problem, *BROKEN => e
        refused = e.is_a?(Problem) && !after && !TEMPORARY.include?(e.status) && e.code != "digest_mismatch"
        raise if tries == MOST_TRIES || refused

        warn "#{e.message} (again in #{after || pause} s)"
      end
      sleep(after ? Integer(after) : pause)
      pause = [pause * 2, 30].min
    end
  end

  def problem(answer)
    JSON.parse(whole(answer))
  rescue Broken, JSON::ParserError # a proxy answers
    {}
  end

  def whole(answer)
    content = answer.read_body
    said = answer["Repr-Digest"]
    if content.to_s.empty? || (said && said != Shardsmith.digest(Digest::SHA256.digest(content)))
      raise Broken, "The answer was damaged on its way."
    end

    content
  end
end

if $PROGRAM_NAME == __FILE__
  service = Shardsmith.new(ENV.fetch("SHARDSMITH_CLIENT_URL", "http://127.0.0.1:8000"), ENV.fetch("SHARDSMITH_CLIENT_TOKEN", nil))
  verb, dataset, what, *more = ARGV
  begin
    case [verb, ARGV.size]
    in ["put", 3..6]
      type, key, parameters = more
      options = { type: type, key: key, parameters: URI.decode_www_form(parameters.to_s) }.compact
      options[:sha256] = Digest::SHA256.file(what).digest unless what == "-"
      sent = false
      stored = service.put(dataset, **options) do
        abort "Standard input cannot be sent again." if what == "-" && sent
        sent = true
        what == "-" ? $stdin.binmode : File.open(what, "rb")
      end
      puts "#{stored["num_records"]} rows"
    in ["publish", 2..4]
      puts service.publish(dataset, **{ key: what, parameters: URI.decode_www_form(more[0].to_s) }.compact)
    in ["wait", 3] then puts service.wait(dataset, what)
    in ["rows", 3..4] then service.rows(dataset, what, *more) { |row| puts row }
    in ["get", 4] then service.get(dataset, what, more[0]) && puts(more[0])
    else abort "put DATASET FILE|- [MEDIA-TYPE [KEY [PARAMETERS]]], publish DATASET [KEY [PARAMETERS]], " \
               "wait DATASET VERSION, rows DATASET VERSION [SPLIT], get DATASET VERSION FOLDER"
    end
  rescue StandardError => e
    abort e.message
  end
end
