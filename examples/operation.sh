# Hands over a request, and waits until it is delivered or needs a person.
admin=${ADMIN:-http://127.0.0.1:7071}
target=${TARGET:-https://api.example.com/orders/7}
token=$(cat "${DATA:-tidegate-data}/admin-token")

call() {
    curl --silent --show-error --fail --header "Authorization: Bearer $token" "$@"
}

accepted=$(call --json '{
    "method": "PUT",
    "url": "'"$target"'",
    "body": {"amount": 5},
    "idempotency_key": "order-7"
}' "$admin/api/v1/operations")
id=$(echo "$accepted" | sed 's/.*"id":"\([^"]*\)".*/\1/')

while
    shown=$(call "$admin/api/v1/operations/$id")
    echo "$shown" | grep --quiet --extended-regexp '"state":"(available|running|retryable)"'
do
    sleep 1
done
echo "$shown"
