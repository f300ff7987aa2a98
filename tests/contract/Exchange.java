import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Path;

/** Posts a file with Java's own client and writes the answer to another: url, in, out, and the client. */
public class Exchange {
    public static void main(String[] args) throws Exception {
        Path in = Path.of(args[1]);
        Path out = Path.of(args[2]);
        if (args[3].equals("HttpClient")) {
            HttpRequest request = HttpRequest.newBuilder(URI.create(args[0]))
                .version(HttpClient.Version.HTTP_1_1)
                .POST(HttpRequest.BodyPublishers.ofFile(in))
                .build();
            var answer = HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofFile(out));
            System.out.println(answer.statusCode());
            return;
        }
        var connection = (java.net.HttpURLConnection) URI.create(args[0]).toURL().openConnection();
        connection.setRequestMethod("POST");
        connection.setDoOutput(true);
        connection.setFixedLengthStreamingMode(java.nio.file.Files.size(in));
        try (var body = connection.getOutputStream()) {
            java.nio.file.Files.copy(in, body);
        }
        try (var answer = connection.getInputStream()) {
            java.nio.file.Files.copy(answer, out);
        }
        System.out.println(connection.getResponseCode());
    }
}
