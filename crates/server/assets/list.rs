&[
    ("assets/console-BCgur3_Z.css", include_bytes!("assets/console-BCgur3_Z.css").as_slice()),
    ("assets/console-CjCeeX2Q.svg", include_bytes!("assets/console-CjCeeX2Q.svg").as_slice()),
    ("assets/console-D3YprPsQ.js", include_bytes!("assets/console-D3YprPsQ.js").as_slice()),
    ("index.html", include_bytes!("index.html").as_slice()),
]
