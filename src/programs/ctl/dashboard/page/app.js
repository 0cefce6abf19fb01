const token = new URLSearchParams(location.hash.slice(1)).get("token");
const answer = await fetch("/v1/state", { headers: { "X-Rooflined-Token": token ?? "" } });
document.getElementById("state").textContent = JSON.stringify(await answer.json(), null, 2);
