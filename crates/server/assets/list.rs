&[
    ("assets/console-C6xYLX4Y.css", include_bytes!("assets/console-C6xYLX4Y.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-DHz8aAgV.js", include_bytes!("assets/console-DHz8aAgV.js").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
